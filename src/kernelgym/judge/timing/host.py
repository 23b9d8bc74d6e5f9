"""Find out from outside the kernel's process whether windows on the CPU waited for other programs.

Pure functions over counts of the operating system (`kernelgym.judge.processes.threads.RunTimes`).

A thread that is ready to run and finds its processor taken waits on the run queue. On a busy host
windows took 1.5 to 3 times as long as alone and varied by 40 %, while the time on the processors
repeated within 5 %: the difference is this wait. Windows that waited are therefore measured again.

What a candidate could gain is bounded:
- Waiting for its own threads does not count. A thread waits for another thread of its process at
  most while that one runs, so what the others ran is taken off its wait. Sleeping is no waiting.
- A pair of windows is discarded as a pair.
- The interval still covers what the discarded pairs say: whatever a candidate has discarded, the
  lower end of its speedup does not rise.

Where more than a third of the pairs waited, the host is busy: the verdict says so, the interval
holds the ratio of every pair, and the speedup is the median of the pairs that did not wait. With
fewer than `LEAST_QUIET_PAIRS` of those a kernel stays untimed, since nothing bounds the error:
under two spinning processes on two cores all windows of long kernels waited, and the range of all
ratios missed the quiet speedup. Subtracting the wait does not mend that: threads of a parallel
region spin until the last one gets a processor, so their time on the processors grows, too.

Not covered: waiting that the run queue does not show, such as for memory that other programs use,
for a processor that a virtual machine's host has given away, or within a container's quota.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kernelgym.judge.processes.threads import RunTimes
from kernelgym.judge.timing import speedup
from kernelgym.judge.timing.speedup import WindowPair
from kernelgym.types import Finding, Severity, Timing
from kernelgym.verdict import HOST_BUSY

__all__ = [
    "LEAST_QUIET_PAIRS",
    "SiftedPairs",
    "finding",
    "has_waited",
    "sift",
    "timing_of",
    "waited_share",
]

LEAST_QUIET_PAIRS = 3
"""Number of pairs that did not wait without which a kernel on a busy host stays untimed."""
_WAITED = 0.05  # share of a window; a timing's interval allows as much between processes anyway
_SPARED = 3  # if more than one of so many pairs waited, the host was busy


@dataclass(frozen=True, slots=True)
class SiftedPairs:
    """Pairs of windows, sifted by whether other programs took the processors meanwhile."""

    taken: tuple[WindowPair, ...]
    """All pairs."""
    kept: tuple[WindowPair, ...]
    """Pairs that did not wait; all pairs if the system hides which did."""
    host: Literal["quiet", "busy", "unknown"]
    """State of the host: busy if more than a third of the pairs waited."""

    @property
    def tells_time(self) -> bool:
        """Whether the kernel can be timed by these pairs."""
        return self.host != "busy" or len(self.kept) >= LEAST_QUIET_PAIRS

    @property
    def waited(self) -> int:
        """Number of pairs that waited for other programs."""
        return sum(has_waited(pair.waited_share) for pair in self.taken)


def waited_share(
    before: RunTimes | None,
    after: RunTimes | None,
    window_ms: float,
    trusted: bool,
    empty_ms: float = 0.0,
) -> float | None:
    """Return the share of a window spent waiting for other programs; None if unknown.

    Args:
        before: Processor times of the process's threads when the window began.
        after: The same when the window ended.
        window_ms: Length of the window.
        trusted: Whether the process runs the reference, whose threads all count in full: they are
            as many as there are processors, and wait for each other only where others take one.
        empty_ms: Wait of a window without calls, which is not counted. Waking up a process counts
            as waiting, on an idle host too. It is part of the
            overhead that is subtracted from the times.
    """
    if before is None or after is None or window_ms <= 0.0:
        return None
    ran_ns, longest_ns = after.ran_ns - before.ran_ns, 0
    for thread, (ran, waited) in after.by_thread.items():
        ran_before, waited_before = before.by_thread.get(thread, (0, 0))
        others_ns = 0 if trusted else max(0, ran_ns - max(0, ran - ran_before))
        longest_ns = max(longest_ns, waited - waited_before - others_ns)
    return min(1.0, max(0.0, longest_ns / 1e6 - empty_ms) / window_ms)


def has_waited(share: float | None) -> bool:
    """Return True if a window waited too long to count."""
    return share is not None and share > _WAITED


def sift(pairs: Sequence[WindowPair]) -> SiftedPairs:
    """Discard the pairs that waited."""
    taken = tuple(pairs)
    if any(pair.waited_share is None for pair in taken):
        return SiftedPairs(taken, taken, "unknown")
    kept = tuple(pair for pair in taken if not has_waited(pair.waited_share))
    busy = _SPARED * (len(taken) - len(kept)) > len(taken)
    return SiftedPairs(taken, kept, "busy" if busy else "quiet")


def timing_of(sifted: SiftedPairs, between_process: float) -> Timing:
    """Return the kept pairs' timing, with an interval for all pairs.

    On a busy or unknown host the interval holds every pair's ratio: its windows do not vary by
    chance alone, so that no statistic of them bounds the error.

    Args:
        sifted: At least one pair that counts (see `SiftedPairs.tells_time`).
        between_process: Relative standard deviation of the speedup between verdicts.
    """
    timing = speedup.summarise(_times(sifted.kept), between_process)
    if sifted.host == "quiet":
        wider = speedup.summarise(_times(sifted.taken), between_process)
        low, high = wider.speedup_low, wider.speedup_high
    else:
        logs = [math.log(reference / kernel) for reference, kernel in _times(sifted.taken)]
        middle = math.log(timing.speedup)
        ends = speedup.widened(min(logs), middle, max(logs), between_process)
        low, high = map(math.exp, ends)
    return replace(
        timing,
        speedup_low=min(timing.speedup_low, low),
        speedup_high=max(timing.speedup_high, high),
    )


def _times(pairs: Sequence[WindowPair]) -> list[tuple[float, float]]:
    return [(pair.reference_ms, pair.kernel_ms) for pair in pairs]


def finding(sifted: SiftedPairs) -> Finding | None:
    """Return a finding if the host was busy or unknown; None if it was quiet."""
    if sifted.host == "quiet":
        return None
    if sifted.host == "unknown":
        message = (
            "this system does not tell whether the processors were busy with other programs "
            "(/proc/PID/task/*/schedstat), so the interval holds every window"
        )
        return Finding("host_unknown", message, Severity.INFO)
    follows = "the interval holds every window" if sifted.tells_time else "no time can be told"
    message = (
        f"{sifted.waited} of {len(sifted.taken)} pairs of windows waited for other programs on the "
        f"processors, so {follows}; judge again when the host is idle"
    )
    return Finding(HOST_BUSY, message, Severity.SOFT)
