"""From paired windows to a speedup with an interval. Pure: no clocks, no processes.

Each pair gives the log-ratio of reference time to kernel time. The speedup is the exponential of
their median; its 95 % interval is the distribution-free one for a median, from order statistics
(Conover, Practical Nonparametric Statistics, section 3.2). Measuring goes on until the interval
is narrow enough, which makes its true coverage a little lower than named.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from kernelgym.rulesets import TimingProtocol
from kernelgym.types import Timing

__all__ = ["enough", "median_interval", "slow_down", "summarise", "suspicion"]


_FLOOR_SLACK = 0.9


def median_interval(values: Sequence[float], coverage: float = 0.95) -> tuple[float, float]:
    """Return the narrowest symmetric order-statistic interval for the median.

    Args:
        values: At least one number.
        coverage: Wanted probability that the interval holds the median.

    Returns:
        (low, high). With too few values for `coverage`, the smallest and the largest.
    """
    ordered, n = sorted(values), len(values)
    # From the k-th smallest to the k-th largest misses with probability 2 P(Bin(n, 1/2) < k).
    rank, miss = 0, 2 / 2**n
    while rank + 1 <= (n - 1) // 2:
        miss += 2 * math.comb(n, rank + 1) / 2**n
        if miss > 1 - coverage:
            break
        rank += 1
    return ordered[rank], ordered[n - 1 - rank]


def enough(log_ratios: Sequence[float], protocol: TimingProtocol) -> bool:
    """Say whether the speedup is known well enough to stop measuring."""
    if len(log_ratios) < protocol.min_pairs:
        return False
    low, high = median_interval(log_ratios)
    return math.exp(high - low) - 1 <= protocol.relative_width


def summarise(pairs: Sequence[tuple[float, float]]) -> Timing:
    """Turn paired times of one call, (reference, kernel) in milliseconds, into a `Timing`.

    Raises:
        ValueError: If there is no pair, or a time is not positive.
    """
    if not pairs or min(min(pair) for pair in pairs) <= 0:
        raise ValueError(f"cannot summarise {len(pairs)} pairs of times")
    log_ratios = [math.log(reference / kernel) for reference, kernel in pairs]
    low, _ = median_interval(log_ratios)
    speedup = math.exp(statistics.median(log_ratios))
    return Timing(
        kernel_ms=statistics.median(kernel for _, kernel in pairs),
        reference_ms=statistics.median(reference for reference, _ in pairs),
        speedup=speedup,
        speedup_low=min(speedup, math.exp(low)),
        samples=len(pairs),
    )


def slow_down(timing: Timing, factor: float) -> Timing:
    """Return the timing of a reference that is `factor` times faster than it was measured."""
    return replace(
        timing,
        reference_ms=timing.reference_ms / factor,
        speedup=timing.speedup / factor,
        speedup_low=timing.speedup_low / factor,
    )


def suspicion(timing: Timing, floor_ms: float, protocol: TimingProtocol) -> str:
    """Say why a timing needs a second process to confirm it; empty if it does not.

    Args:
        timing: What was measured.
        floor_ms: What moving the inputs and outputs once takes at the memory's bandwidth.
        protocol: The rules.
    """
    if timing.kernel_ms < _FLOOR_SLACK * floor_ms:
        return (
            f"{timing.kernel_ms:.3g} ms is less than the {floor_ms:.3g} ms that reading the inputs "
            "and writing the outputs once takes"
        )
    if timing.speedup > protocol.quarantine_above:
        return f"a speedup of {timing.speedup:.3g} is above {protocol.quarantine_above:g}"
    return ""
