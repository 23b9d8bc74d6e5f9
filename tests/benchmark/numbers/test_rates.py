"""pass@k and fast_p: by enumeration, by hand, and what they keep for any verdicts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, outcome_of
from kernelgym.benchmark.numbers.rates import correct_rate, fast_curve, fast_rate, pass_rate
from kernelgym.errors import UsageError
from support.benchmark_runs import LOST, RIGHT, WRONG, fast, spell
from support.strategies import verdicts

OUTCOMES = st.lists(
    st.builds(
        EpisodeOutcome,
        st.sampled_from("ABC"),
        st.just(1),
        st.just(""),
        st.none() | verdicts(),
        st.none() | verdicts(),
    ),
    max_size=12,
)


def outcomes(**words: str) -> list[EpisodeOutcome]:
    """Return what spelled episodes came to, by problem."""
    return [outcome_of(each) for name, text in words.items() for each in spell(text, name)]


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 8))
def test_pass_at_k_is_what_enumeration_gives(right: list[bool], k: int) -> None:
    found = pass_rate([EpisodeOutcome("A", 1, first=RIGHT if r else WRONG) for r in right], k)
    if k > len(right):
        assert found is None
        return
    tries = list(itertools.combinations(right, k))
    assert found is not None
    assert found.value == pytest.approx(sum(map(any, tries)) / len(tries))


def test_pass_at_k_leaves_out_problems_with_too_few() -> None:
    """KernelBench's own average divides by them all the same."""
    found = pass_rate(outcomes(A="r r w w", B="w"), 2)
    assert found is not None and found.n == 1
    assert found.value == pytest.approx(5 / 6)


def test_first_answers_and_episodes_are_told_apart() -> None:
    played = outcomes(A="r wr ww ww", B="ww ww ww ww")
    first, within = pass_rate(played, 1), pass_rate(played, 1, within=True)
    assert first is not None and within is not None
    assert (first.value, within.value) == (pytest.approx(0.125), pytest.approx(0.25))


def test_what_was_not_judged_is_in_no_rate() -> None:
    played = outcomes(A="x xr rx w- ww")
    first, within = correct_rate(played), correct_rate(played, within=True)
    assert first is not None and (first.value, first.n) == (pytest.approx(1 / 3), 3)
    assert within is not None and (within.value, within.n) == (0.0, 1)
    assert correct_rate(outcomes(A="x")) is None and pass_rate([], 1) is None


@given(OUTCOMES, st.booleans())
def test_fast_p_falls_and_certain_is_below_point(
    played: list[EpisodeOutcome], within: bool
) -> None:
    curve = fast_curve(played, [n / 4 for n in range(20)], within=within)
    assert all(one.point >= two.point for one, two in itertools.pairwise(curve))
    assert all(one.certain >= two.certain for one, two in itertools.pairwise(curve))
    assert all(0 <= each.certain <= each.point <= 1 for each in curve)
    for each in curve:
        rate = fast_rate(played, each.p, within=within)
        assert rate is not None and rate.value == pytest.approx(each.point)


def test_fast_p_is_strict_and_needs_a_time() -> None:
    played = [EpisodeOutcome("A", 1, first=fast(2.0, 1.9)), EpisodeOutcome("B", 1, first=RIGHT)]
    rates = [fast_rate(played, p) for p in (0.0, 1.9, 2.0)]
    assert [rate.value for rate in rates if rate] == [1.0, 0.5, 0.0]
    certain = fast_rate(played, 1.9, certain=True)
    assert certain is not None and certain.value == 0.0


def test_winners_second_measurement_counts() -> None:
    (episode,) = spell("2435")
    assert outcome_of(episode).best == fast(5.0) and not outcome_of(episode).confirmed
    again = outcome_of(episode, fast(3.0))
    assert again.best == fast(3.0) and again.confirmed and again.first == fast(2.0)
    assert outcome_of(episode, WRONG).best == WRONG, "it was wrong the second time"
    assert outcome_of(episode, LOST).best == fast(5.0), "nothing was learned"


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_a_negative_p_is_refused(bad: float) -> None:
    with pytest.raises(UsageError, match="p >= 0"):
        fast_rate([], bad)


def test_pass_at_0_is_refused() -> None:
    with pytest.raises(UsageError, match="k >= 1"):
        pass_rate([], 0)
