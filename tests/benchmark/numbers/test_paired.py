"""Two runs compared: the sign test, differences, and that chance is called chance."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, outcome_of
from kernelgym.benchmark.numbers.paired import paired, paired_rates, paired_speeds, sign_test
from support.benchmark_runs import RIGHT, WRONG, fast, spell

NUMBERS = st.dictionaries(st.sampled_from("ABCDEFGH"), st.floats(-5, 5), max_size=8)


@given(st.integers(0, 7), st.integers(0, 7))
def test_sign_test_is_what_enumeration_gives(wins: int, losses: int) -> None:
    n, seen = wins + losses, abs(wins - losses)
    coins = list(itertools.product((1, -1), repeat=n))
    extreme = sum(abs(sum(coin)) >= seen for coin in coins) / len(coins)
    assert sign_test(wins, losses) == pytest.approx(extreme)


@given(NUMBERS, NUMBERS)
def test_comparison_turns_round_with_its_sides(
    first: dict[str, float], second: dict[str, float]
) -> None:
    one, other = paired(first, second), paired(second, first)
    if one is None or other is None:
        assert not first.keys() & second.keys()
        return
    assert one.problems == len(first.keys() & second.keys())
    assert one.difference == pytest.approx(-other.difference, abs=1e-9)
    assert set(one.wins) == set(other.losses) and one.p == other.p
    assert one.low <= one.difference <= one.high and one.low < one.high


def test_rates_are_compared_by_problem() -> None:
    def side(**words: str) -> list[EpisodeOutcome]:
        return [outcome_of(each) for name, text in words.items() for each in spell(text, name)]

    found = paired_rates(side(A="r w", B="w w", C="r", D="x"), side(A="r r", B="r w", C="w", D="r"))
    assert found is not None and found.problems == 3, "D was not judged once"
    assert (found.wins, found.losses, found.ties) == (("Test/L1/A", "Test/L1/B"), ("Test/L1/C",), 0)
    assert found.difference == pytest.approx((0.5 + 0.5 - 1.0) / 3)
    assert found.p == pytest.approx(1.0)


def test_a_difference_of_rates_is_at_most_one() -> None:
    sides = [[EpisodeOutcome(n, 1, first=v) for n in "ABC"] for v in (WRONG, RIGHT)]
    found = paired_rates(*sides)
    assert found is not None and found.high == found.difference == 1.0 and found.low < 0.7


def test_speeds_are_compared_where_both_are_solved() -> None:
    one = [EpisodeOutcome("A", 1, first=fast(2.0)), EpisodeOutcome("B", 1, first=fast(3.0))]
    found = paired_speeds(
        one, [EpisodeOutcome("A", 1, first=fast(4.0)), EpisodeOutcome("C", 1, first=fast(9.0))]
    )
    assert found is not None and found.problems == 1
    assert found.difference == pytest.approx(0.6931, abs=1e-3)


def test_equal_runs_are_seldom_told_apart() -> None:
    chance, told = random.Random(3), 0
    for _ in range(200):
        sides = [{str(n): float(chance.random() < 0.4) for n in range(30)} for _ in range(2)]
        found = paired(*sides)
        assert found is not None
        told += not found.low <= 0.0 <= found.high
    assert told / 200 <= 0.1


def test_runs_without_common_problems_have_no_result() -> None:
    assert paired({"A": 1.0}, {"B": 1.0}) is None
