"""Speedups of correct kernels: geometric means, and speedups over a baseline file.

Contract: pure; all means and intervals of speeds are taken in log space (Fleming and Wallace, CACM
29(3), 1986). An interval over problems is an accelerated bootstrap, widened to the
measurements' own noise where it is narrower.

Kernel and baseline file were measured at different times, so `UnpairedSpeedup` combines the noise
of both measurements in its interval. Other differences between the two times are not in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from kernelgym.benchmark.numbers.intervals import Array, bootstrap_interval
from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, by_problem
from kernelgym.errors import UsageError
from kernelgym.types import Timing, Verdict

_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class GeometricMean:
    """A geometric mean with its 95 % interval."""

    value: float
    low: float | None
    """Lower end of the interval; None if there is no interval."""
    high: float | None
    n: int
    """Number of kernels."""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.3g}x"
        return f"{self.value:.3g}x ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True, slots=True)
class BaselineTime:
    """Time of a reference, from a file of baselines."""

    mean_ms: float
    std_ms: float = 0.0
    trials: int = 1
    mode: str = ""
    """Mode in which the reference ran, such as ``eager`` or ``max-autotune``."""

    def __post_init__(self) -> None:
        if not (0.0 < self.mean_ms < math.inf and 0.0 <= self.std_ms < math.inf):
            raise UsageError(f"a baseline takes a positive time, got {self.mean_ms} ms")


@dataclass(frozen=True, slots=True)
class UnpairedSpeedup:
    """A speedup over a baseline that was measured at another time."""

    speedup: float
    low: float
    high: float
    mode: str


def log_noise(timing: Timing) -> float:
    """Return the standard error of a speedup's logarithm, from its interval."""
    return max(0.0, math.log(timing.speedup) - math.log(timing.speedup_low)) / _Z


def geometric_mean_speedup(verdicts: Iterable[Verdict]) -> float:
    """Return ``exp(mean(log(speedup)))`` over the correct and timed verdicts.

    Raises:
        UsageError: If no verdict is timed.
    """
    logs = [math.log(verdict.timing.speedup) for verdict in verdicts if verdict.timing is not None]
    if not logs:
        raise UsageError("geometric_mean_speedup needs at least one correct and timed verdict")
    return math.exp(math.fsum(logs) / len(logs))


def geometric_mean(
    outcomes: Iterable[EpisodeOutcome], *, within: bool = False, faster: bool = False
) -> GeometricMean | None:
    """Return the geometric mean speedup; None if no kernel was timed.

    Args:
        outcomes: The episodes.
        within: Take the best turn of whole episodes, not the first answer.
        faster: Count only kernels that are faster than the reference.
    """
    rows: list[tuple[float, float]] = []
    noises: list[float] = []
    for group in by_problem(outcomes).values():
        found = [_timing(outcome.verdict(within), faster) for outcome in group]
        timed = [timing for timing in found if timing is not None]
        if timed:
            rows.append((math.fsum(math.log(each.speedup) for each in timed), float(len(timed))))
            noises += map(log_noise, timed)
    if not rows:
        return None
    kernels = len(noises)
    value = math.fsum(total for total, _ in rows) / kernels
    noise = _Z * math.sqrt(math.fsum(each * each for each in noises)) / kernels
    low, high = bootstrap_interval(rows, _ratio, least=noise)
    if low == high:
        return GeometricMean(math.exp(value), None, None, kernels)
    return GeometricMean(math.exp(value), math.exp(low), math.exp(high), kernels)


def unpaired_speedup(timing: Timing, baselines: Sequence[BaselineTime]) -> UnpairedSpeedup | None:
    """Return the speedup over the fastest baseline; None without one.

    The standard errors of both logarithms are added in quadrature; that of the kernel is taken
    from the interval of its paired speedup, which holds the eager reference's noise as well.

    Args:
        timing: Timing of the kernel.
        baselines: Times of the same problem's reference, one for each mode.
    """
    if not baselines:
        return None
    best = min(baselines, key=lambda each: each.mean_ms)
    theirs = best.std_ms / best.mean_ms / math.sqrt(max(1, best.trials))
    half = _Z * math.hypot(theirs, log_noise(timing))
    speedup = best.mean_ms / timing.kernel_ms
    return UnpairedSpeedup(speedup, speedup * math.exp(-half), speedup * math.exp(half), best.mode)


def _timing(verdict: Verdict | None, faster: bool) -> Timing | None:
    if verdict is None or verdict.timing is None:
        return None
    return verdict.timing if not faster or verdict.timing.speedup > 1.0 else None


def _ratio(rows: Array) -> Array:
    sums = rows.sum(axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[..., 0] / sums[..., 1])
