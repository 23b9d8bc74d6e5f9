"""The turn loop, with seats, policies and judges that are written here."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.episodes.playing import EpisodeSeat, Judge, play_turns, side_by_side
from kernelgym.errors import PolicyFailure, UsageError
from kernelgym.prompts.observer import Observer
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import Answer, Kernel, Message, Problem, Trajectory, Verdict
from support.strategies import texts, verdicts

TURNS = 4
OBSERVER = Observer("triton", "cpu", "strict", max_turns=TURNS, examples="zero_shot")


def episode(stop_when: str = "never") -> Episode:
    return Episode(
        SAMPLE_PROBLEM, EpisodeConfig(language="triton", max_turns=TURNS, stop_when=stop_when)
    )


def kernels(number: int) -> str:
    """Return an answer whose kernel differs from every other number's."""
    kernel = SAMPLE_KERNELS["triton"]
    return reply(Kernel(f"{kernel.source}\n# {number}\n", kernel.language))


def saying(*answers: str | Exception) -> Callable[[Any], Coroutine[Any, Any, str]]:
    """Return a policy that gives these answers in turn, and raises the exceptions."""
    left = iter(answers)

    async def policy(_: Any) -> str:
        await asyncio.sleep(0)
        if isinstance(given := next(left), Exception):
            raise given
        return given

    return policy


def judging(found: Sequence[Verdict], asked: list[Kernel] | None = None) -> Judge:
    """Return a judge that chooses by the kernel, so that the order of calls plays no part."""

    async def judge(problem: Problem, kernel: Kernel) -> Verdict:
        await asyncio.sleep(0)
        if asked is not None:
            asked.append(kernel)
        return found[int(kernel.digest, 16) % len(found)]

    return judge


def play(*answers: str | Exception, found: Sequence[Verdict], **options: str) -> Trajectory:
    seat = EpisodeSeat(episode(**options), OBSERVER)
    return asyncio.run(play_turns(seat, saying(*answers), judging(found)))


marked = st.builds(Answer, texts | st.integers(0, 3).map(kernels), st.booleans())
stop_rules = st.sampled_from(["correct", "never", "no_improvement:1"])


def by_hand(answers: Sequence[Answer], found: Sequence[Verdict], stop_when: str) -> Episode:
    """Play without the loop, up to the end of episode or answers."""
    game = episode(stop_when)
    for answer in answers:
        if game.over:
            break
        read = game.read(str(answer), cut_off=answer.cut_off)
        if isinstance(read, Kernel):
            known = game.known_verdict(read)
            read = known or found[int(read.digest, 16) % len(found)]
        game.record(str(answer), read)
    return game


@given(
    st.lists(marked, min_size=TURNS, max_size=TURNS),
    st.lists(verdicts(), min_size=1, max_size=4),
    st.integers(0, TURNS),
    stop_rules,
)
@settings(deadline=None)
def test_turns_are_those_of_an_episode_by_hand(answers, found, given_before, stop_when) -> None:
    """A failure after some answers leaves the turns before it, and cuts what goes on."""
    game = by_hand(answers[:given_before], found, stop_when)
    failing = [*answers[:given_before], PolicyFailure("gone")]
    played = play(*failing, found=found, stop_when=stop_when)
    assert played == dataclasses.replace(game.trajectory, ended=game.ended or "cut")
    assert all(type(turn.action) is str for turn in played.turns)


def test_policy_is_shown_what_the_observer_writes() -> None:
    shown: list[tuple[Message, ...]] = []
    game = episode()

    async def policy(messages: tuple[Message, ...]) -> str:
        shown.append(messages)
        assert messages == OBSERVER.observe(SAMPLE_PROBLEM, game.turns, 700)
        return kernels(len(shown))

    asyncio.run(
        play_turns(
            EpisodeSeat(game, dataclasses.replace(OBSERVER, context_tokens=700)),
            policy,
            judging([verdict("wrong")]),
        )
    )
    assert len(shown) == len(game.turns) == TURNS


def test_same_kernel_twice_is_judged_once() -> None:
    asked: list[Kernel] = []
    seat = EpisodeSeat(episode(), OBSERVER)
    same = saying(*[kernels(1), kernels(2)] * 2)
    asyncio.run(play_turns(seat, same, judging([verdict("wrong")], asked)))
    assert len(asked) == 2 and len(seat.trajectory.turns) == TURNS


def test_policy_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kernelgym"):
        played = play(PolicyFailure("the server dropped it"), found=[verdict("wrong")])
    assert (played.ended, played.turns) == ("cut", ())
    (record,) = caplog.records
    assert SAMPLE_PROBLEM.id in record.message and "the server dropped it" in record.message


@pytest.mark.parametrize("error", [RuntimeError("gone"), UsageError("no"), TimeoutError()])
def test_other_errors_of_a_policy_are_raised(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        play(kernels(1), error, found=[verdict("wrong")])
    assert raised.value is error


def test_policy_failure_of_a_judge_is_raised() -> None:
    """Only a policy's failure cuts: a judge that raises it has a fault of another kind."""

    async def judge(problem: Problem, kernel: Kernel) -> Verdict:
        raise PolicyFailure("a judge that samples?")

    with pytest.raises(PolicyFailure):
        asyncio.run(play_turns(EpisodeSeat(episode(), OBSERVER), saying(kernels(1)), judge))


def test_seat_refuses_a_kernel_without_verdict() -> None:
    seat = EpisodeSeat(episode(), OBSERVER)
    assert isinstance(seat.read(kernels(1)), Kernel)
    with pytest.raises(UsageError, match="verdict"):
        seat.take(kernels(1), None)


def test_seat_that_ends_early_is_cut() -> None:
    class Limited(EpisodeSeat):
        @property
        def over(self) -> bool:
            return len(self.episode.turns) == 2

    seat = Limited(episode(), OBSERVER)
    answers = map(kernels, range(TURNS))
    played = asyncio.run(play_turns(seat, saying(*answers), judging([verdict("wrong")])))
    assert (played.ended, len(played.turns)) == ("cut", 2)


# -- several at the same time --------------------------------------------------------------------


@given(st.lists(st.integers(0, 5), max_size=8), st.none() | st.integers(1, 9))
@settings(deadline=None)
def test_side_by_side_keeps_order_and_limit(delays: list[int], at_once: int | None) -> None:
    live = most = 0

    async def one(delay: int) -> int:
        nonlocal live, most
        live += 1
        most = max(most, live)
        for _ in range(delay):
            await asyncio.sleep(0)
        live -= 1
        return delay

    assert asyncio.run(side_by_side(delays, one, at_once)) == delays
    assert most <= (at_once or len(delays)) and live == 0


def test_side_by_side_error_cancels_the_others() -> None:
    ended: list[int] = []

    async def one(number: int) -> None:
        try:
            if number == 1:
                await asyncio.sleep(0)
                raise RuntimeError("the model is gone")
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(RuntimeError, match="the model is gone"):
        asyncio.run(side_by_side(range(3), one))
    assert sorted(ended) == [0, 1, 2], "none is left running"


def test_side_by_side_limit_below_one_is_refused() -> None:
    async def one(number: int) -> int:
        return number

    with pytest.raises(UsageError, match="at_once"):
        asyncio.run(side_by_side([1], one, 0))


def test_one_failure_leaves_the_other_games_alone() -> None:
    async def one(number: int) -> Trajectory:
        answers: list[str | Exception] = [kernels(turn) for turn in range(TURNS)]
        if number == 1:
            answers[2] = PolicyFailure("dropped")
        seat = EpisodeSeat(episode(), OBSERVER)
        return await play_turns(seat, saying(*answers), judging([verdict("wrong")]))

    played = asyncio.run(side_by_side(range(3), one))
    ends = [(each.ended, len(each.turns)) for each in played]
    assert ends == [("budget", 4), ("cut", 2), ("budget", 4)]
