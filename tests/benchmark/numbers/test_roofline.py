"""The roofline and the SOL score, by hand and by property."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome
from kernelgym.benchmark.numbers.roofline import (
    RooflineLimit,
    mean_share,
    mean_sol_score,
    roofline_ms,
    roofline_share,
    sol_score,
)
from kernelgym.errors import UsageError
from kernelgym.types import Timing
from support.benchmark_runs import RIGHT, WRONG

TIMING = Timing(0.5, 1.0, 2.0, 1.9, 10, floor_ms=0.1, moved_bytes=10**8)
MS = st.floats(1e-3, 1e3)
AMOUNTS = st.floats(0.0, 1e15)
RATES = st.floats(1e6, 1e15)


def timed(kernel_ms: float, reference_ms: float, floor_ms: float = 0.1) -> Timing:
    speedup = reference_ms / kernel_ms
    return Timing(kernel_ms, reference_ms, speedup, speedup, 9, floor_ms=floor_ms, moved_bytes=8)


def test_roofline_is_the_longer_of_two_times() -> None:
    assert roofline_ms(1e9, 0.0, 1e12, 0.0) == pytest.approx(1.0)
    assert roofline_ms(1e9, 1e13, 1e12, 1e15) == pytest.approx(10.0)
    assert roofline_ms(1e9, 1e13, 1e12, 0.0) == pytest.approx(1.0), "the rate is unknown"
    with pytest.raises(UsageError, match="bandwidth"):
        roofline_ms(1e9, 0.0, 0.0, 0.0)


@given(AMOUNTS, AMOUNTS, RATES, RATES, st.floats(1.0, 1e3))
def test_more_work_never_takes_less(
    moved: float, operations: float, bandwidth: float, rate: float, more: float
) -> None:
    least = roofline_ms(moved, operations, bandwidth, rate)
    assert least >= roofline_ms(moved, 0.0, bandwidth, 0.0)
    assert least >= roofline_ms(0.0, operations, bandwidth, rate)
    assert roofline_ms(more * moved, operations, bandwidth, rate) >= least
    assert roofline_ms(moved, more * operations, bandwidth, rate) >= least
    assert roofline_ms(moved, operations, more * bandwidth, more * rate) <= least


def test_share_of_bytes_alone_is_floor_share() -> None:
    assert roofline_share(TIMING) == pytest.approx(TIMING.floor_share)
    # 4e10 operations at 1e14 a second take 0.4 ms of the kernel's 0.5.
    assert roofline_share(TIMING, RooflineLimit(4e10, 1e14)) == pytest.approx(0.8)
    assert roofline_share(TIMING, RooflineLimit(4e10, 1e14, 1e6)) == pytest.approx(0.8), (
        "its own bandwidth"
    )
    without = dataclasses.replace(TIMING, floor_ms=0.0)
    assert roofline_share(without) is None
    # 10^8 bytes at 10^12 a second are 0.1 ms.
    assert roofline_share(without, RooflineLimit(bytes_per_s=1e12)) == pytest.approx(0.2)
    assert (
        roofline_share(dataclasses.replace(TIMING, moved_bytes=0), RooflineLimit(1.0, 1.0, 1.0))
        is None
    )


@pytest.mark.parametrize("given", [(-1.0, 1.0, 1.0), (1.0, math.inf, 1.0), (1.0, 1.0, math.nan)])
def test_a_limit_is_finite_and_not_negative(given) -> None:
    with pytest.raises(UsageError, match="not negative"):
        RooflineLimit(*given)


@given(MS, MS, MS)
def test_sol_score_is_half_at_the_reference(kernel: float, reference: float, least: float) -> None:
    score = sol_score(kernel, reference, least)
    if least >= reference:
        assert score is None
        return
    assert score is not None and 0.0 < score <= 1.0
    assert sol_score(reference, reference, least) == pytest.approx(0.5)
    assert sol_score(least, reference, least) == 1.0
    assert (score > 0.5) == (kernel < reference) or score == pytest.approx(0.5)
    if kernel > least:
        # As the paper writes it.
        assert score == pytest.approx(1 / (1 + (kernel - least) / (reference - least)))
    else:
        assert score == 1.0


@given(MS, MS, MS, st.floats(1.0, 10.0), st.floats(1e-2, 1e2))
def test_sol_score_falls_with_time_in_any_unit(
    kernel: float, reference: float, least: float, slower: float, unit: float
) -> None:
    score = sol_score(kernel, reference, least)
    if score is None or reference < 1.001 * least:
        return
    later = sol_score(slower * kernel, reference, least)
    assert later is not None and later <= score
    assert sol_score(unit * kernel, unit * reference, unit * least) == pytest.approx(score)


@pytest.mark.parametrize("given", [(0.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, math.nan)])
def test_a_sol_score_needs_positive_times(given) -> None:
    with pytest.raises(UsageError, match="positive times"):
        sol_score(*given)


def test_means_are_of_correct_timed_kernels_with_a_limit() -> None:
    def correct(timing: Timing):
        return dataclasses.replace(RIGHT, timing=timing)

    played = [
        EpisodeOutcome("A", 1, first=correct(timed(0.2, 0.3))),  # share 0.5, score 2/3
        EpisodeOutcome("A", 1, first=correct(timed(0.05, 0.3))),  # beyond the limit: 1 and 1
        EpisodeOutcome("B", 1, first=correct(timed(0.4, 0.1))),  # share 0.25; reference at it
        EpisodeOutcome("C", 1, first=correct(timed(0.1, 0.3))),  # no limit is known
        EpisodeOutcome("D", 1, first=WRONG),
        EpisodeOutcome("E", 1, first=RIGHT),
        EpisodeOutcome("F", 1, best=correct(timed(0.1, 0.2))),
    ]
    limits = {name: RooflineLimit() for name in "ABDEF"}
    share, score = mean_share(played, limits), mean_sol_score(played, limits)
    assert share is not None and share.value == pytest.approx((0.5 + 1.0 + 0.25) / 3)
    assert score is not None and score.value == pytest.approx((2 / 3 + 1.0) / 2) and score.n == 2
    assert 0.0 <= share.low < share.value < share.high <= 1.0
    best = mean_sol_score(played, limits, within=True)
    assert best is not None and best.value == 1.0 and best.low < 1.0
    assert mean_share(played, {}) is None and mean_sol_score(played[3:], {}) is None
