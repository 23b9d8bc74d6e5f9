"""The append-only context: a prompt is a prefix of the next, and a full one ends the episode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.episodes.playing import EpisodeSeat, play_turns
from kernelgym.errors import UsageError
from kernelgym.prompts.context import CONTEXTS, Context
from kernelgym.prompts.observer import Observer
from kernelgym.prompts.parts import Room
from kernelgym.prompts.short import ShortObserver
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply, verdict
from kernelgym.types import Kernel, Message, Problem, Turn, Verdict
from support.strategies import texts, verdicts

STEPS = st.lists(st.tuples(texts, verdicts()), max_size=6)


def observer(**options: object) -> Observer:
    given: dict[str, object] = {"context": "transcript", "max_turns": 9, "examples": 0}
    return Observer("triton", "cpu", **(given | options))  # type: ignore[arg-type]


def played(steps: Sequence[tuple[str, Verdict]]) -> tuple[Turn, ...]:
    game = Episode(SAMPLE_PROBLEM, EpisodeConfig(language="triton", max_turns=9, stop_when="never"))
    for text, found in steps:
        if game.over:
            break
        read = game.read(text)
        game.record(text, found if isinstance(read, Kernel) else read)
    return game.turns


def answer(number: int, size: int = 0) -> str:
    source = f"{SAMPLE_KERNELS['triton'].source}# variant {number} {'x' * size}\n"
    return reply(Kernel(source, "triton"), f"thought {number}")


def growing(problem: Problem, turns: Sequence[Turn], room: Room) -> str:
    """A part whose text depends on the turns, if it is shown any."""
    del problem, room
    return f"# {len(turns)} turns so far\n"


@given(
    steps=STEPS,
    budget=st.none() | st.integers(0, 3_000),
    limit=st.none() | st.integers(3_000, 6_000),
    part=st.booleans(),
)
def test_every_prompt_is_a_prefix_of_the_next(
    steps: list[tuple[str, Verdict]], budget: int | None, limit: int | None, part: bool
) -> None:
    shows = observer(prompt_tokens=limit, parts=(growing,) if part else ())
    turns = played(steps)
    before: tuple[Message, ...] = ()
    for count in range(len(turns) + 1):
        messages = shows.observe(SAMPLE_PROBLEM, turns[:count], budget)
        assert messages[: len(before)] == before
        full = shows.is_full(SAMPLE_PROBLEM, turns[:count], budget)
        assert full == (len(messages) < 2 + 2 * count)
        assert shows.tokens(messages[2:]) <= (shows.context_tokens if budget is None else budget)
        assert limit is None or shows.tokens(messages) <= limit
        before = messages
    if part:
        assert "# 0 turns so far" in before[1].content


@given(steps=STEPS)
def test_whole_answers_are_shown(steps: list[tuple[str, Verdict]]) -> None:
    turns = played(steps)
    messages = observer(context_tokens=10**6).observe(SAMPLE_PROBLEM, turns)
    said = [message.content for message in messages if message.role == "assistant"]
    assert said == [turn.action.encode("utf-8", "replace").decode() for turn in turns]


def test_other_contexts_are_never_full() -> None:
    turns = played([(answer(n), verdict("wrong")) for n in range(4)])
    for name in set(CONTEXTS) - {"transcript"}:
        shows = observer(context=name)
        assert not shows.is_full(SAMPLE_PROBLEM, turns, 0)
        third, fourth = (shows.observe(SAMPLE_PROBLEM, turns[:count]) for count in (2, 3))
        assert fourth[: len(third)] != third, name
    short = ShortObserver("triton", "cpu", context="transcript", max_turns=9)
    assert not short.is_full(SAMPLE_PROBLEM, turns, 0)


def test_full_context_cuts_a_played_episode() -> None:
    async def answers(shown: tuple[Message, ...]) -> str:
        return answer(len(shown), 2_000)

    async def wrong(problem: Problem, kernel: Kernel) -> Verdict:
        return verdict("wrong")

    episode = Episode(SAMPLE_PROBLEM, EpisodeConfig(language="triton", max_turns=9))
    seat = EpisodeSeat(episode, observer(context_tokens=2_000))
    trajectory = asyncio.run(play_turns(seat, answers, wrong))
    assert trajectory.ended == "cut" and 1 < len(trajectory.turns) < 9
    assert all(turn.verdict.valid for turn in trajectory.turns)
    with pytest.raises(UsageError, match="it cannot be cut"):
        episode.cut()


def test_full_context_truncates_an_environment() -> None:
    env = gym.make(
        "KernelBench-L1-MultiTurn-v0",
        problems=[SAMPLE_PROBLEM],
        evaluator=ScriptedEvaluator(lambda problem, kernel: verdict("wrong")),
        context="transcript",
        context_tokens=1_500,
        max_turns=9,
    )
    env.reset(seed=1)
    ends = []
    for number in range(9):
        _, _, terminated, truncated, info = env.step(answer(number, 1_200))
        ends.append((terminated, truncated))
        if truncated:
            break
    assert ends[-1] == (False, True) and 1 < len(ends) < 9
    assert isinstance(env.unwrapped, KernelEnv) and env.unwrapped.episode.ended == "cut"
    assert info["prompt_tokens"] > 0


def test_first_prompt_that_is_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="prompt_tokens=600; raise it"):
        observer(prompt_tokens=600).observe(SAMPLE_PROBLEM)


def test_fields_that_would_change_the_past_are_set() -> None:
    assert Context(last=2, best=True, append_only=True) == CONTEXTS["transcript"]
    assert not CONTEXTS["transcript"].asks_summary


@pytest.mark.parametrize("limit", [0, -1, True, "many"])
def test_prompt_tokens_are_at_least_one(limit):
    with pytest.raises(UsageError, match="prompt_tokens"):
        observer(prompt_tokens=limit)
