from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.errors import UnknownName, UsageError
from kernelgym.prompts.context import (
    CONTEXTS,
    Context,
    Detail,
    Shown,
    best_turn,
    context_policy,
    own_summary,
)
from kernelgym.prompts.observer import Observer, render
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import Kernel, Turn, Verdict
from support.strategies import verdicts

OBSERVER = Observer("triton", "cuda:0", max_turns=20, examples=0, context_tokens=100_000)


def kernel(number: int) -> Kernel:
    return Kernel(SAMPLE_KERNELS["triton"].source + f"# variant {number}.\n", "triton")


def play(found: list[Verdict], after: str = "") -> tuple[Turn, ...]:
    game = Episode(
        SAMPLE_PROBLEM, EpisodeConfig(language="triton", max_turns=20, stop_when="never")
    )
    for number, each in enumerate(found, 1):
        text = reply(kernel(number), f"at length {number}\n\nin short {number}{after}")
        game.read(text)
        game.record(text, each)
    return game.turns


WRONG = verdict("wrong", trials_passed=1)
STORY = [WRONG, verdict("correct", speedup=2.0), verdict("correct", speedup=1.5), WRONG, WRONG]


def seen(context: object, turns: tuple[Turn, ...], budget: int | None = None) -> str:
    observer = dataclasses.replace(OBSERVER, context=context)
    return render(observer.observe(SAMPLE_PROBLEM, turns, budget))


def variants(text: str) -> list[int]:
    """Which attempts' kernels a text holds."""
    return [number for number in range(1, 30) if f"# variant {number}." in text]


def lines(text: str) -> list[int]:
    return [number for number in range(1, 30) if f"- Turn {number}: " in text]


@pytest.mark.parametrize(
    ("name", "kernels", "listed"),
    [
        ("last", [5], []),
        ("recent", [4, 5], [1, 2, 3]),
        ("best", [2, 5], [1, 3, 4]),
        ("kernels", [1, 2, 3, 4, 5], []),
        ("window", [1, 2, 3, 4, 5], []),
        ("whole", [1, 2, 3, 4, 5], []),
        ("transcript", [1, 2, 3, 4, 5], []),
    ],
)
def test_what_each_policy_shows(name: str, kernels: list[int], listed: list[int]) -> None:
    text = seen(name, play(STORY))
    assert (variants(text), lines(text)) == (kernels, listed)
    assert ("at length" in text) == (name in ("whole", "transcript"))
    assert ("in short" in text) == (name in ("whole", "transcript", "kernels"))
    assert ("# What later turns see" in text) == (name == "kernels")


def test_every_name_is_tested() -> None:
    tested = {args[0] for args in test_what_each_policy_shows.pytestmark[0].args[1]}
    assert tested == set(CONTEXTS)


def test_policies_are_put_together() -> None:
    both = CONTEXTS["last"] | CONTEXTS["best"] | Context(last=3, lines=False)
    assert both == Context(last=3, best=True)
    assert variants(seen(both, play(STORY))) == [2, 3, 4, 5]
    assert (CONTEXTS["kernels"] | CONTEXTS["whole"]).detail is Detail.WHOLE
    assert CONTEXTS["best"] | CONTEXTS["transcript"] == CONTEXTS["transcript"]


def test_a_policy_may_be_anybodys() -> None:
    class Odd:
        asks_summary = False

        def choose(self, turns):
            return [Shown(i, Detail.KERNEL, or_line=False) for i in range(0, len(turns), 2)]

    assert variants(seen(Odd(), play(STORY))) == [1, 3, 5]
    # The last attempt is shown whatever a policy chooses.
    assert variants(seen(Odd(), play(STORY[:4]))) == [1, 3, 4]


@pytest.mark.parametrize("name", ["kernels", "window", "whole"])
def test_what_does_not_fit_goes_from_the_oldest_on(name: str) -> None:
    turns = play([WRONG] * 8)
    whole = seen(name, turns)
    step = (len(whole) - len(seen("last", turns))) // 4 // 7
    before: list[int] = list(range(1, 9))
    for budget in range(8 * step, 0, -step // 2):
        text = seen(name, turns, budget)
        shown = variants(text)
        assert set(shown) - {1} <= set(before)  # the best, here the first, goes last
        recent = [number for number in shown if number != 1]
        assert recent == list(range(recent[0], 9))
        assert name == "kernels" or not lines(text)
        before = shown
    assert variants(seen(name, turns, 0)) == [8]


def test_the_best_outlives_newer_attempts() -> None:
    turns = play([verdict("correct", speedup=3.0), *[WRONG] * 6])
    for name in ("best", "kernels", "window"):
        observer = dataclasses.replace(OBSERVER, context=name)
        one = observer.tokens(observer.observe(SAMPLE_PROBLEM, turns, 0)[2:])
        text = seen(name, turns, 2 * one + 60)
        assert variants(text) == [1, 7]
        assert "# What became of turn 1, the best so far" in text


def test_thinking_goes_before_a_whole_answer_does() -> None:
    turns = play([WRONG] * 3, after=" and so on" * 400)
    whole = seen("whole", turns)
    assert whole.count("and so on") == 1_200
    tight = seen("whole", turns, 2_100)
    assert variants(tight) == [1, 2, 3] and 400 <= tight.count("and so on") < 500


def test_lines_take_the_place_of_what_does_not_fit() -> None:
    turns = play([WRONG] * 8)
    text = seen("kernels", turns, 900)
    assert lines(text) and variants(text)
    assert sorted([*lines(text), *variants(text)]) == list(range(1, 9))


@pytest.mark.parametrize(
    ("found", "best"),
    [
        ([], None),
        ([verdict("rejected"), verdict("unavailable")], None),
        ([WRONG, verdict("correct")], 1),
        ([verdict("correct", speedup=1.2), verdict("correct", speedup=1.2), WRONG], 0),
        ([verdict("correct"), verdict("correct", speedup=0.5)], 1),
        ([verdict("compile_error"), verdict("wrong", trials_passed=3), WRONG], 1),
    ],
)
def test_the_best_so_far(found: list[Verdict], best: int | None) -> None:
    assert best_turn(play(found)) == best


@given(st.lists(verdicts(), max_size=6))
def test_what_is_chosen_is_in_order_and_ends_with_the_last(found: list[Verdict]) -> None:
    game = Episode(
        SAMPLE_PROBLEM, EpisodeConfig(language="triton", max_turns=20, stop_when="never")
    )
    for number, each in enumerate(found):
        if game.over:
            break
        text = reply(kernel(number))
        game.read(text)
        game.record(text, each)
    for policy in CONTEXTS.values():
        chosen = [shown.index for shown in policy.choose(game.turns)]
        assert chosen == sorted(set(chosen))
        assert chosen[-1:] == [len(game.turns) - 1][: len(game.turns)]


def test_a_models_own_summary() -> None:
    def turn(text: str) -> Turn:
        game = Episode(SAMPLE_PROBLEM, EpisodeConfig(language="triton"))
        read = game.read(text)
        return game.record(text, WRONG if isinstance(read, Kernel) else read)

    body = reply(kernel(1), "long\n\nlast words")
    assert own_summary(turn(body)) == "last words"
    assert own_summary(turn(f"<SUMMARY>\nmask\n</SUMMARY>\n{body}")) == "mask"
    assert own_summary(turn(f"<SUMMARY>open {body}")) == "last words"
    assert own_summary(turn("nothing at all")) == ""


@pytest.mark.parametrize(
    "options", [{"last": 0}, {"last": True}, {"last": 1.5}, {"detail": Detail.LINE}]
)
def test_bad_fields_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Context(**options)  # type: ignore[arg-type]


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean kernels"):
        context_policy("kernel")
    with pytest.raises(UsageError, match="choose"):
        context_policy(object())  # type: ignore[arg-type]
