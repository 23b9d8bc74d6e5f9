"""Intervals: that they hold what they should, cover what they promise, and are never of width 0."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark.numbers.intervals import (
    bootstrap_interval,
    cluster_rate,
    mean_rate,
    student,
    wilson,
)
from kernelgym.errors import UsageError

COUNTS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8)).map(lambda p: (min(p), max(p))), max_size=12
)
SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(COUNTS)
def test_interval_holds_its_rate_and_has_a_width(clusters: list[tuple[int, int]]) -> None:
    found = cluster_rate(clusters)
    of = sum(n for _, n in clusters)
    if not of:
        assert found is None
        return
    assert found is not None and found == cluster_rate(clusters)
    assert found.value == pytest.approx(sum(c for c, _ in clusters) / of) and found.n == of
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
    assert found.high - found.low > 0.0


@given(COUNTS)
def test_failures_are_the_mirror_of_successes(clusters: list[tuple[int, int]]) -> None:
    one = cluster_rate(clusters)
    other = cluster_rate([(n - c, n) for c, n in clusters])
    if one is None or other is None:
        assert one is other
        return
    assert (other.low, other.high) == pytest.approx((1 - one.high, 1 - one.low))


def test_equal_answers_tell_as_much_as_one() -> None:
    """Sixteen equal answers to each of four problems tell as much as one answer to each."""
    many = cluster_rate([(16, 16), (16, 16), (0, 16), (0, 16)])
    one = cluster_rate([(1, 1), (1, 1), (0, 1), (0, 1)])
    assert many is not None and one is not None
    assert (many.low, many.high) == pytest.approx((one.low, one.high))
    assert one.high - one.low > 0.7


def test_different_answers_tell_more_than_one() -> None:
    alike = cluster_rate([(4, 4), (0, 4)] * 20)
    mixed = cluster_rate([(2, 4)] * 40)
    assert alike is not None and mixed is not None
    assert mixed.high - mixed.low < 0.6 * (alike.high - alike.low)


def test_interval_has_the_width_of_theory() -> None:
    found = cluster_rate([(1, 1)] * 60 + [(0, 1)] * 40)
    assert found is not None
    half = 1.96 * (0.6 * 0.4 / 100) ** 0.5
    assert found.low == pytest.approx(0.6 - half, abs=0.02)
    assert found.high == pytest.approx(0.6 + half, abs=0.02)


def covered(problems: int, rate: float, *, alike: float, samples: int, times: int) -> float:
    """Return the share of simulated benchmarks whose interval holds the true rate.

    Args:
        problems: Of one benchmark.
        rate: Mean of the problems' own rates.
        alike: Correlation of answers to one problem; their rates have a beta distribution.
        samples: Answers to each problem.
        times: Benchmarks.
    """
    chance = random.Random(f"{problems}/{rate}/{alike}/{samples}")

    def own() -> float:
        if alike == 0.0:
            return rate
        if alike == 1.0:
            return float(chance.random() < rate)
        scale = (1 - alike) / alike
        return chance.betavariate(rate * scale, (1 - rate) * scale)

    held = 0
    for _ in range(times):
        clusters = []
        for _ in range(problems):
            mine = own()
            clusters.append((sum(chance.random() < mine for _ in range(samples)), samples))
        found = cluster_rate(clusters)
        assert found is not None
        held += found.low <= rate <= found.high
    return held / times


@pytest.mark.parametrize("rate", [0.03, 0.1, 0.5])
@pytest.mark.parametrize("problems", [20, 100])
def test_intervals_cover_what_they_promise(problems: int, rate: float) -> None:
    assert covered(problems, rate, alike=0.3, samples=4, times=500) >= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.03, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("problems", [5, 20, 100])
@pytest.mark.parametrize(("alike", "samples"), [(0.0, 8), (0.3, 1), (0.3, 16), (0.8, 4), (1.0, 4)])
def test_intervals_cover_however_alike(
    problems: int, rate: float, alike: float, samples: int
) -> None:
    # 2,000: of 60 cases with 500 benchmarks each, some fall below by the simulation's own noise.
    assert covered(problems, rate, alike=alike, samples=samples, times=2000) >= 0.92


@given(SHARES, st.floats(1, 8))
def test_mean_of_shares_is_their_mean(values: list[float], worth: float) -> None:
    found = mean_rate(values, worth)
    assert found is not None and found.n == len(values)
    assert found.value == pytest.approx(math.fsum(values) / len(values), abs=1e-9)
    assert found.low <= found.value <= found.high and found.low < found.high


def test_intervals_narrow_with_more_problems() -> None:
    few, many = mean_rate([0.0, 1.0] * 5), mean_rate([0.0, 1.0] * 200)
    assert few is not None and many is not None
    assert many.high - many.low < few.high - few.low < 1.0


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (99, 1.984)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, rel=2e-3)


def test_wilson_is_the_published_example() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263, 15 of 148, 0 of 20.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15 / 148, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@pytest.mark.parametrize(("share", "n"), [(-0.1, 4), (1.1, 4), (0.5, 0), (math.nan, 4)])
def test_wilson_refuses_what_is_no_share(share: float, n: float) -> None:
    with pytest.raises(UsageError, match="share in"):
        wilson(share, n)


def mean(rows: np.ndarray) -> np.ndarray:
    return rows[..., 0].mean(axis=-1)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12), st.floats(0.0, 1.0))
def test_bootstrap_holds_the_statistic(values: list[float], least: float) -> None:
    rows = [[value] for value in values]
    low, high = bootstrap_interval(rows, mean, least=least, draws=100)
    whole = float(mean(np.asarray(rows)))
    assert min(values) - least - 1e-9 <= low <= whole - least + 1e-9
    assert whole + least - 1e-9 <= high <= max(values) + least + 1e-9
    assert (low, high) == bootstrap_interval(rows, mean, least=least, draws=100)


def test_bootstrap_covers_the_mean_of_a_skewed_law() -> None:
    """Log-normal values, 30 problems: a plain percentile interval covers about 88 %."""
    chance = np.random.default_rng(5)
    true, held, times = math.exp(0.5), 0, 300
    for _ in range(times):
        rows = chance.lognormal(size=(30, 1))
        low, high = bootstrap_interval(rows, mean, draws=400)
        held += low <= true <= high
    assert held / times >= 0.88


def test_bootstrap_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one value"):
        bootstrap_interval([], mean)
