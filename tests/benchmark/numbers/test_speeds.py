"""Geometric means and unpaired speedups, by hand and by property."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, outcome_of
from kernelgym.benchmark.numbers.speeds import (
    BaselineTime,
    geometric_mean,
    log_noise,
    unpaired_speedup,
)
from kernelgym.errors import UsageError
from kernelgym.types import Timing
from support.benchmark_runs import RIGHT, WRONG, fast, spell

TIMING = Timing(0.5, 1.0, 2.0, 1.9, 10, floor_ms=0.1, moved_bytes=10**8)
SPEEDS = st.lists(st.floats(0.01, 100), min_size=1, max_size=12)


@given(SPEEDS)
def test_geometric_mean_is_that_of_the_speedups(speeds: list[float]) -> None:
    found = geometric_mean([EpisodeOutcome(str(n), 1, first=fast(s)) for n, s in enumerate(speeds)])
    assert found is not None and found.n == len(speeds)
    expected = math.exp(sum(map(math.log, speeds)) / len(speeds))
    assert found.value == pytest.approx(expected)
    assert found.low is not None and found.high is not None
    assert found.low < found.value * (1 + 1e-9) and found.value < found.high * (1 + 1e-9)
    assert found.low < found.high


def test_only_correct_and_timed_kernels_have_a_speed() -> None:
    found = {"A": fast(4), "B": RIGHT, "C": WRONG, "D": fast(0.25)}
    played = [EpisodeOutcome(name, 1, first=verdict) for name, verdict in found.items()]
    whole, faster = geometric_mean(played), geometric_mean(played, faster=True)
    assert whole is not None and whole.value == pytest.approx(1.0) and whole.n == 2
    assert faster is not None and faster.value == pytest.approx(4.0) and faster.n == 1
    assert geometric_mean([outcome_of(each) for each in spell("r w")]) is None


def test_one_kernel_has_its_measurements_interval() -> None:
    found = geometric_mean([EpisodeOutcome("A", 1, first=fast(2.0, 1.6))])
    assert found is not None and found.low == pytest.approx(1.6)
    assert found.high == pytest.approx(2.5)
    exact = geometric_mean([EpisodeOutcome("A", 1, first=fast(2.0, 2.0))])
    assert exact is not None and exact.low is exact.high is None and str(exact) == "2x"


def test_unpaired_speedup_is_over_the_fastest_mode() -> None:
    modes = [BaselineTime(2.0, 0.1, 100, "eager"), BaselineTime(1.5, 0.3, 9, "max-autotune")]
    found = unpaired_speedup(TIMING, modes)
    assert found is not None and found.mode == "max-autotune"
    assert found.speedup == pytest.approx(3.0)
    half = 1.959964 * math.hypot(0.3 / 1.5 / 3, log_noise(TIMING))
    assert math.log(found.high / found.low) == pytest.approx(2 * half, rel=1e-5)
    assert unpaired_speedup(TIMING, []) is None


@pytest.mark.parametrize("mean", [0.0, -1.0, math.inf, math.nan])
def test_a_baseline_takes_a_positive_time(mean: float) -> None:
    with pytest.raises(UsageError, match="positive time"):
        BaselineTime(mean)
