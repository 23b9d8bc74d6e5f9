"""Turn paired windows into a speedup with an interval.

Pure functions: no clocks, no processes.

Each pair gives the log-ratio of reference time to kernel time. The speedup is the exponential of
their median; its 95 % interval is the distribution-free one for a median, from order statistics
(Conover, Practical Nonparametric Statistics, section 3.2). Measuring stops when the interval is
narrow enough, which makes its true coverage a little lower than 95 %.

The spread between processes does not show inside one pair of processes, so the interval is widened
by a constant: with m the median log-ratio, [l, h] its interval and s the standard deviation between
processes, the reported interval of the log-ratio is
[m - sqrt((m - l)^2 + (1.96 s)^2), m + sqrt((h - m)^2 + (1.96 s)^2)].
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelgym.rulesets import TimingProtocol
from kernelgym.types import Timing
from kernelgym.verdict import MOST_WINDOWS

_LEAST_QUIET = 4  # windows for a lower quartile
_FLOOR_SLACK = 0.85  # kernels that mostly read reach more bandwidth than the copies of the floor
_STANDARD_ERRORS = 4.0
_MOST_NOISE = 0.1  # of a window's time
_OCCUPIED_FACTOR, _OCCUPIED_MS = 1.5, 0.5
_COPY_MS = 0.004  # of a few bytes between two kernels of a graph, with room to spare
_NO_SLOWER, _COPIES_MORE = 1.3, 2.0
_NORMAL_95 = 1.96  # standard deviations that hold 95 % of a normal distribution


@dataclass(frozen=True, slots=True)
class WindowPair:
    """One window of the reference and one of a kernel, on the same inputs."""

    reference_ms: float
    """Time per call of the reference, by its process's own clock where it has one."""
    kernel_ms: float
    """Time per call of the kernel, by its process's own clock where it has one."""
    reference_window_ms: float
    """Time of the reference's whole window by the judge's clock."""
    kernel_window_ms: float
    """Time of the kernel's whole window by the judge's clock."""
    reference_layout_ms: float = 0.0
    """Time to copy values into the reference's slots, on a GPU; 0.0 on the CPU."""
    kernel_layout_ms: float = 0.0
    """Time to copy values into the kernel's slots, on a GPU; 0.0 on the CPU."""
    waited_share: float | None = 0.0
    """Largest share of either window spent waiting for processors that other programs held, on
    the CPU; None if unknown."""

    kernel_waited: bool = False
    """Whether the kernel's window waited for other programs too long to count."""
    kernel_run_ms: float = 0.0
    """Time per call of the kernel without the time that its window waited for other programs, on
    the CPU; 0.0 on a GPU."""

    @property
    def shorter_ms(self) -> float:
        """Time per call of the faster side."""
        return min(self.reference_ms, self.kernel_ms)


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
    """Return True if the speedup's interval is narrow enough to stop measuring."""
    if len(log_ratios) < protocol.min_pairs:
        return False
    low, high = median_interval(log_ratios)
    return math.exp(high - low) - 1 <= protocol.relative_width


def widened(low: float, middle: float, high: float, between_process: float) -> tuple[float, float]:
    """Return the interval (low, high) widened in quadrature around `middle`.

    Args:
        low: Lower end.
        middle: The estimate.
        high: Upper end.
        between_process: Standard deviation between processes, which the interval leaves out.
    """
    term = _NORMAL_95 * between_process
    return middle - math.hypot(middle - low, term), middle + math.hypot(high - middle, term)


def summarise(pairs: Sequence[tuple[float, float]], between_process: float = 0.0) -> Timing:
    """Return the `Timing` of paired times per call.

    Args:
        pairs: (reference, kernel) in milliseconds, at least one pair.
        between_process: Relative standard deviation of the speedup between verdicts, by which the
            interval is widened.

    Raises:
        ValueError: If there is no pair, or a time is not positive.
    """
    if not pairs or min(min(pair) for pair in pairs) <= 0:
        raise ValueError(f"cannot summarise {len(pairs)} pairs of times")
    log_ratios = [math.log(reference / kernel) for reference, kernel in pairs]
    middle = statistics.median(log_ratios)
    low, high = median_interval(log_ratios)
    low, high = widened(low, middle, high, between_process)
    speedup = math.exp(middle)
    return Timing(
        kernel_ms=statistics.median(kernel for _, kernel in pairs),
        reference_ms=statistics.median(reference for reference, _ in pairs),
        speedup=speedup,
        speedup_low=min(speedup, math.exp(low)),
        speedup_high=max(speedup, math.exp(high)),
        samples=len(pairs),
        windows=tuple((_short(kernel), _short(ref)) for ref, kernel in pairs[-MOST_WINDOWS:]),
    )


def _short(ms: float) -> float:
    """Return a time rounded to six digits, since records keep many."""
    return float(f"{ms:.6g}")


def slow_down(timing: Timing, factor: float) -> Timing:
    """Return the timing with the reference made `factor` times faster."""
    return replace(
        timing,
        reference_ms=timing.reference_ms / factor,
        speedup=timing.speedup / factor,
        speedup_low=timing.speedup_low / factor,
        speedup_high=timing.speedup_high / factor,
        windows=tuple((kernel, _short(ref / factor)) for kernel, ref in timing.windows),
    )


def turn_ms(pairs: Sequence[WindowPair]) -> float:
    """Return a kernel's time per call, to be compared with kernels timed in turns with it.

    It is the lower quartile of the windows that did not wait for other programs, or of all windows
    less their wait if there are too few of these. What disturbs a window makes it longer, and
    seldom disturbs most of them: on a host with other work, medians of one kernel differ by a
    factor of two between rounds. The wait alone does not tell all of it, since threads of a
    parallel region spin until the last one gets a processor.

    Args:
        pairs: The kernel's pairs of windows on the CPU, one at least.
    """
    quiet = [pair.kernel_run_ms for pair in pairs if not pair.kernel_waited]
    ordered = sorted(
        quiet if len(quiet) >= _LEAST_QUIET else [pair.kernel_run_ms for pair in pairs]
    )
    return ordered[(len(ordered) - 1) // 4]


def suspicion(timing: Timing, floor_ms: float, protocol: TimingProtocol) -> str:
    """Return why a second process must confirm a timing, or ''.

    Args:
        timing: The timing that was measured.
        floor_ms: Time to move the inputs and outputs once at the memory's bandwidth.
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


def window_costs(pairs: Sequence[WindowPair], calls: int) -> list[float]:
    """Return the overhead of each of the reference's windows, in milliseconds.

    The overhead is the time of a window minus the time of its calls.

    Args:
        pairs: Windows of `calls` calls each.
        calls: Number of calls in every window.
    """
    return [p.reference_window_ms - calls * p.reference_ms for p in pairs]


def outside_bounds(pairs: Sequence[WindowPair], costs: Sequence[float], calls: int) -> list[float]:
    """Return the kernel's time per call by the judge's clock, in milliseconds.

    The overhead of a window is subtracted as it was for the reference, whose process is trusted.

    Args:
        pairs: Windows of `calls` calls each.
        costs: `window_costs` of windows of the same kind.
        calls: Number of calls in every window.
    """
    cost_ms = statistics.median(costs)
    return [max(p.kernel_window_ms - cost_ms, p.kernel_window_ms * 0.1) / calls for p in pairs]


def disbelief(
    pairs: Sequence[WindowPair],
    bounds: Sequence[float],
    costs: Sequence[float],
    slack_ms: float,
    calls: int,
) -> str:
    """Return how the kernel's clock contradicts the judge's, or ''.

    The overhead of windows varies. How much it varies is taken from the reference's windows, since
    a kernel could make its own vary as much as it likes. On a busy host it varies by as much as a
    window takes, which then excuses a tenth of the window at most, or the slack once more:
    measuring again settles more.

    Args:
        pairs: The measured pairs.
        bounds: `outside_bounds` of the pairs.
        costs: The `window_costs` that the bounds were computed with.
        slack_ms: How much shorter, in a whole window, the kernel's own times may be beyond four
            standard errors of the bounds' median.
        calls: Number of calls in every window.
    """
    claimed, bound = statistics.median(p.kernel_ms for p in pairs), statistics.median(bounds)
    middle = statistics.median(costs)
    spread = statistics.median(abs(cost - middle) for cost in costs)
    # In a normal distribution, the standard deviation is 1.4826 times the median absolute
    # deviation, and the median of n values has a standard error of 1.2533 of it / sqrt(n).
    error_ms = 1.4826 * 1.2533 * spread / math.sqrt(len(bounds))
    most_ms = max(slack_ms, _MOST_NOISE * bound * calls)
    allowed_ms = slack_ms + min(_STANDARD_ERRORS * error_ms, most_ms)
    if claimed >= bound - allowed_ms / calls:
        return ""
    return (
        f"its process reported {claimed:.4g} ms a call where at least {bound:.4g} ms passed outside"
    )


def hastened(
    pairs: Sequence[WindowPair], asked: Sequence[WindowPair], copies: int, reference_too: bool
) -> str:
    """Return how calls are slower once their inputs are written between them, or ''.

    Such calls cannot be computed by an earlier one, nor rely on what an earlier window left.
    Copying a few bytes of each input before a call takes as long in the reference's graph. Of
    several windows the fastest counts.

    Args:
        pairs: Pairs of windows whose inputs were there before.
        asked: Pairs of windows of the same graphs, whose inputs were written between the calls.
        copies: Number of copies before each call.
        reference_too: Whether the reference's calls are captured in a graph, too.
    """
    if not asked:
        return ""
    before = statistics.median(pair.kernel_ms for pair in pairs)
    between = min(pair.kernel_ms for pair in asked)
    cost = copies * _COPY_MS
    if reference_too:
        usual = statistics.median(pair.reference_ms for pair in pairs)
        cost = max(cost / 2, min(pair.reference_ms for pair in asked) - usual)
    if between <= before * _NO_SLOWER + _COPIES_MORE * cost:
        return ""
    return (
        f"a call took {between:.4g} ms where its inputs are written just before it, and "
        f"{before:.4g} ms where they are all there at the start: a kernel that computes for later "
        "calls, or looks whether something was written, cannot be timed"
    )


def is_occupied(pairs: Sequence[WindowPair]) -> bool:
    """Return True if a halted kernel's work kept the device busy.

    Copying values into the kernel's slots takes as long as into the reference's, unless work that
    the kernel has left on the device delays the copies.

    Args:
        pairs: The measured pairs.
    """
    theirs = statistics.median(p.kernel_layout_ms for p in pairs)
    ours = statistics.median(p.reference_layout_ms for p in pairs)
    return theirs > _OCCUPIED_FACTOR * ours + _OCCUPIED_MS
