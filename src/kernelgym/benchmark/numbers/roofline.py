"""Distance of kernels from the hardware's limit: share of the roofline, SOL score.

Contract: pure. The limit of a problem on a device is the longer of two times (Williams, Waterman
and Patterson, CACM 52(4), 2009): moving the bytes of its inputs and outputs at the measured
bandwidth, and doing the operations of its reference at the measured rate of matrix products. The
SOL score (Lin and others, arXiv 2603.19173) is the part of the way from the reference's time to the
limit that a kernel covers.

Not covered: operations that a better algorithm avoids, the bytes of weights (`Timing.moved_bytes`
leaves them out), and lower precisions than the reference's. With these, a kernel may be faster than
its limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kernelgym.benchmark.numbers.intervals import RateEstimate, cluster_rate
from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, by_problem
from kernelgym.errors import UsageError
from kernelgym.types import Timing


@dataclass(frozen=True, slots=True)
class RooflineLimit:
    """Operations of a problem, and the measured rates of the device that does them."""

    operations: float = 0.0
    """Floating-point operations of the reference in one call; 0 if unknown."""
    operations_per_s: float = 0.0
    """Measured rate of matrix products at the problem's precision; 0 if unknown."""
    bytes_per_s: float = 0.0
    """Measured bandwidth, used where a verdict holds none; 0 if unknown."""

    def __post_init__(self) -> None:
        given = (self.operations, self.operations_per_s, self.bytes_per_s)
        if not all(0.0 <= each < math.inf for each in given):
            raise UsageError(f"operations and rates are finite and not negative, got {given}")


def roofline_ms(
    moved_bytes: float, operations: float, bytes_per_s: float, operations_per_s: float
) -> float:
    """Return the least time that the hardware needs, in milliseconds.

    Args:
        moved_bytes: Bytes of inputs and outputs of one call.
        operations: Floating-point operations of one call; 0 if unknown.
        bytes_per_s: Measured bandwidth.
        operations_per_s: Measured rate of matrix products at the problem's precision; 0 if unknown.

    Raises:
        UsageError: If the bandwidth is not positive, or anything is negative.
    """
    if not bytes_per_s > 0.0 or min(moved_bytes, operations, operations_per_s) < 0.0:
        raise UsageError(
            "a roofline needs a positive bandwidth and no negative number, "
            f"got {bytes_per_s} B/s, {moved_bytes} B, {operations} operations "
            f"at {operations_per_s}/s"
        )
    computing = operations / operations_per_s if operations and operations_per_s else 0.0
    return 1000.0 * max(moved_bytes / bytes_per_s, computing)


def limit_ms(timing: Timing, limit: RooflineLimit | None = None) -> float | None:
    """Return the least time of a problem on its device, in milliseconds; None if unknown.

    Bandwidth and bytes are those of the verdict (`Timing.floor_ms`), which the judge measured on
    the device that the kernel ran on; without them, the limit's bandwidth is used.

    Args:
        timing: Timing of the kernel.
        limit: Operations of the problem and rates of the device; None counts bytes alone.
    """
    if not timing.moved_bytes:
        return None
    given = limit or RooflineLimit()
    bandwidth = given.bytes_per_s
    if timing.floor_ms:
        bandwidth = 1000.0 * timing.moved_bytes / timing.floor_ms
    if not bandwidth:
        return None
    return roofline_ms(timing.moved_bytes, given.operations, bandwidth, given.operations_per_s)


def roofline_share(timing: Timing, limit: RooflineLimit | None = None) -> float | None:
    """Return the limit's time over the kernel's time; None if unknown.

    A share above 1 means that the kernel left work out or computed in a lower precision, or that
    bytes or operations are counted too high.

    Args:
        timing: Timing of the kernel.
        limit: Operations and rates; None counts bytes alone.
    """
    least = limit_ms(timing, limit)
    return None if least is None else least / timing.kernel_ms


def sol_score(kernel_ms: float, reference_ms: float, least_ms: float) -> float | None:
    """Return the SOL score: the covered part of the way from the reference's time to the limit.

    ``1 / (1 + (kernel - limit) / (reference - limit))`` (arXiv 2603.19173): 0.5 for a kernel as
    fast as the reference, 1 at the limit, towards 0 for a slow one. A kernel below the limit has 1.

    Args:
        kernel_ms: Time of the kernel.
        reference_ms: Time of the reference.
        least_ms: Time at the limit.

    Returns:
        The score; None if the reference is as fast as the limit or faster.

    Raises:
        UsageError: If a time is not positive and finite.
    """
    if not all(0.0 < each < math.inf for each in (kernel_ms, reference_ms, least_ms)):
        raise UsageError(
            f"a SOL score needs positive times, got {kernel_ms}, {reference_ms}, {least_ms} ms"
        )
    if least_ms >= reference_ms:
        return None
    gap = reference_ms - least_ms
    return gap / (gap + max(0.0, kernel_ms - least_ms))


def mean_share(
    outcomes: Iterable[EpisodeOutcome], limits: Mapping[str, RooflineLimit], *, within: bool = False
) -> RateEstimate | None:
    """Return the mean share of the roofline; None if unknown.

    Correct, timed kernels count. A share above 1 counts as 1.

    Args:
        outcomes: The episodes.
        limits: Limits by problem id; problems without a limit are left out.
        within: Take the best turn of whole episodes, not the first answer.
    """

    def share(timing: Timing, limit: RooflineLimit) -> float | None:
        found = roofline_share(timing, limit)
        return None if found is None else min(1.0, found)

    return _mean(share, outcomes, limits, within)


def mean_sol_score(
    outcomes: Iterable[EpisodeOutcome], limits: Mapping[str, RooflineLimit], *, within: bool = False
) -> RateEstimate | None:
    """Return the mean SOL score of correct, timed kernels.

    Args:
        outcomes: The episodes.
        limits: Limits by problem id; problems without a limit are left out.
        within: Take the best turn of whole episodes, not the first answer.

    Returns:
        The mean; None if no kernel has a score.
    """

    def score(timing: Timing, limit: RooflineLimit) -> float | None:
        least = limit_ms(timing, limit)
        return sol_score(timing.kernel_ms, timing.reference_ms, least) if least else None

    return _mean(score, outcomes, limits, within)


def _mean(
    of: Callable[[Timing, RooflineLimit], float | None],
    outcomes: Iterable[EpisodeOutcome],
    limits: Mapping[str, RooflineLimit],
    within: bool,
) -> RateEstimate | None:
    """Return the mean of a number over timings of problems with a limit; None if none is known."""
    clusters = []
    for problem, group in by_problem(outcomes).items():
        if problem in limits:
            verdicts = [outcome.verdict(within) for outcome in group]
            timings = [each.timing for each in verdicts if each and each.timing is not None]
            found = [of(timing, limits[problem]) for timing in timings]
            known = [value for value in found if value is not None]
            clusters.append((math.fsum(known), float(len(known))))
    return cluster_rate(clusters)
