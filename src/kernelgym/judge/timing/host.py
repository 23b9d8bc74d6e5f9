"""Finds out from outside the kernel's process whether windows on the CPU waited for other programs.

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

Threads of the judge's own two processes wait on an idle host, too: to wake up, and where the
scheduler puts both threads of a parallel region on one processor beside an idle one. Such windows
take up to twenty times as long, but no other program is to blame. So a host is called busy only if
`HostLoad` does not tell that other programs left the processors alone meanwhile.

Not covered: waiting that the run queue does not show, such as for memory that other programs use,
or within a container's quota.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kernelgym.judge.processes.threads import RunTimes
from kernelgym.judge.timing import speedup
from kernelgym.judge.timing.speedup import WindowPair
from kernelgym.types import Finding, Severity, Timing
from kernelgym.verdict import HOST_BUSY

LEAST_QUIET_PAIRS = 3
"""Smallest number of pairs that did not wait; with fewer, a kernel on a busy host stays untimed."""
_WAITED = 0.05  # share of a window; a timing's interval allows as much between processes anyway
_SPARED = 3  # if more than one of so many pairs waited, the host was busy
_LEFT_ALONE = 0.15  # processors: other programs that use fewer disturb few windows
_LEAST_S = 0.3  # the system counts idle time in ticks of 10 ms


class HostLoad:
    """Measures how many processors programs other than the judge's own use, from its creation on.

    A processor that a virtual machine's host has given away counts as used.

    Args:
        own_s: Returns the processor time in seconds that the judge's own processes have used; None
            if the system hides it.
        idle_s: Returns the seconds that the usable processors were idle; None if unknown. Read from
            ``/proc/stat`` by default.
        now: Clock in seconds.
        processors: Number of the usable processors; this process's by default.
    """

    def __init__(
        self,
        own_s: Callable[[], float | None],
        idle_s: Callable[[], float | None] | None = None,
        now: Callable[[], float] = time.monotonic,
        processors: int | None = None,
    ) -> None:
        self._own_s, self._idle_s, self._now = own_s, idle_s or _idle_s, now
        self._processors = processors or len(os.sched_getaffinity(0))
        self._first = self._read()

    def _read(self) -> tuple[float, float | None, float | None]:
        return self._now(), self._idle_s(), self._own_s()

    def others(self) -> float | None:
        """Return the average number of processors that other programs used.

        Returns:
            None within the first 0.3 seconds, or if the system hides a time.
        """
        (begun, idle_before, own_before), (now, idle, own) = self._first, self._read()
        wall_s = now - begun
        if wall_s < _LEAST_S or idle is None or idle_before is None:
            return None
        if own is None or own_before is None:
            return None
        return max(0.0, self._processors - (idle - idle_before + own - own_before) / wall_s)

    def is_early(self) -> bool:
        """Return True if a later look will tell what this one cannot."""
        begun, idle, own = self._first
        return idle is not None and own is not None and self._now() - begun < _LEAST_S

    def left_alone(self) -> bool:
        """Return True if it is known that other programs left the processors alone."""
        others = self.others()
        return others is not None and others <= _LEFT_ALONE


def _idle_s() -> float | None:
    """Return the idle seconds since boot, summed over the processors that this process may use.

    Returns:
        None if the system hides them.
    """
    ticks = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        for line in _lines_of_processors():
            name, *fields = line.split()
            if name in usable:
                usable.remove(name)
                ticks += int(fields[3]) + int(fields[4])  # idle, and idle during a disk's work
        if not usable:
            return ticks / os.sysconf("SC_CLK_TCK")
    return None


def _lines_of_processors() -> list[str]:
    with open("/proc/stat") as file:
        return [line for line in file if line.startswith("cpu")]


@dataclass(frozen=True, slots=True)
class SiftedPairs:
    """Pairs of windows, sifted by whether other programs took the processors meanwhile."""

    taken: tuple[WindowPair, ...]
    """All pairs."""
    kept: tuple[WindowPair, ...]
    """Pairs that did not wait; all pairs if the system hides which did."""
    host: Literal["quiet", "busy", "unknown"]
    """State of the host: busy if more than a third of the pairs waited for other programs."""

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


def sift(
    pairs: Sequence[WindowPair], left_alone: Callable[[], bool] = lambda: False
) -> SiftedPairs:
    """Discard the pairs that waited for other programs.

    Args:
        pairs: All pairs of a kernel.
        left_alone: Returns whether other programs left the processors alone (`HostLoad`). Then all
            pairs count, as they waited for the judge's own threads.
    """
    taken = tuple(pairs)
    if any(pair.waited_share is None for pair in taken):
        return SiftedPairs(taken, taken, "unknown")
    kept = tuple(pair for pair in taken if not has_waited(pair.waited_share))
    if _SPARED * (len(taken) - len(kept)) <= len(taken):
        return SiftedPairs(taken, kept, "quiet")
    if left_alone():
        return SiftedPairs(taken, taken, "quiet")
    return SiftedPairs(taken, kept, "busy")


def timing_of(sifted: SiftedPairs, between_process: float) -> Timing:
    """Return the kept pairs' timing, with an interval for all pairs.

    On a busy or unknown host the interval holds every pair's ratio: its windows do not vary by
    chance alone, so that no statistic of them bounds the error.
    Where the judge's own threads made most pairs wait, they vary between processes as well, and the
    interval holds the inner nine tenths of the ratios.

    Args:
        sifted: At least one pair that counts (see `SiftedPairs.tells_time`).
        between_process: Relative standard deviation of the speedup between verdicts.
    """
    timing = speedup.summarise(_times(sifted.kept), between_process)
    if sifted.host == "quiet" and _SPARED * sifted.waited <= len(sifted.taken):
        wider = speedup.summarise(_times(sifted.taken), between_process)
        low, high = wider.speedup_low, wider.speedup_high
    else:
        logs = sorted(math.log(reference / kernel) for reference, kernel in _times(sifted.taken))
        spared = len(logs) // 20 if sifted.host == "quiet" else 0
        middle = math.log(timing.speedup)
        ends = speedup.widened(logs[spared], middle, logs[-1 - spared], between_process)
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
