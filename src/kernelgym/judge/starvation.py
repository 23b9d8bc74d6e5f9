"""Distinguishes a process that is slow from one that gets no processor.

Limits of builds and runs are seconds on a quiet host: the seconds in which other programs kept a
build or a kernel from the processors extend them. So a busy host fails no kernel.

Contract:

- Time in which a process runs or sleeps counts; time in which its threads are ready to run and get
  no processor does not. On a quiet host a process therefore ends at its limit, whatever it does.
- Threads that wait for each other count: only processors that the process could have used beside
  those that it did use are missing.
- A limit grows to `PATIENCE` times its seconds at most. Beyond that, a process that used less
  processor time than the limit was starved: `HostTooBusy`, a failure of the judge. Otherwise it is
  late.

Does not cover waiting for memory, for a disk, or for what a virtual machine's host takes away. On
systems without ``/proc/PID/task/*/schedstat``, limits are wall seconds.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping

from kernelgym.errors import JudgeError

PATIENCE = 5.0
"""Largest wall time that a limit may grow to on a busy host, as a multiple of the limit."""
_FIRST_S, _EVERY_S = 0.05, 0.5  # between looks; what answers sooner than the first costs nothing

_Times = Mapping[str, tuple[int, int]]


class HostTooBusy(JudgeError):
    """Raised if a limit ended while other programs held the processors, before its work began."""


class Starvation:
    """Counts the seconds in which some processes, with all they started, got no processor.

    Args:
        limit_s: The limit that these seconds extend.
        read: Function that returns the times of the threads of processes and their descendants.
        now: Clock in seconds.
        processors: Number of processors that the processes may use; the caller's by default.
    """

    def __init__(
        self,
        limit_s: float,
        read: Callable[[Iterable[int]], _Times] | None = None,
        now: Callable[[], float] = time.monotonic,
        processors: int | None = None,
    ) -> None:
        self._limit_s, self._read, self._now = limit_s, read or _tree_times, now
        self._processors = processors or len(os.sched_getaffinity(0))
        self.missed_s = 0.0
        """Seconds that were missed so far; they extend the limit."""
        self._ran_s = 0.0
        self._pids: list[int] = []
        self._before: dict[str, tuple[int, int]] = {}
        self._looked, self._due = now(), now() + _EVERY_S

    def begin(self, *pids: int) -> None:
        """Begin to count the starvation of these processes."""
        self._pids, self._before = [*pids], {}
        self._looked, self._due = -1.0, self._now() + _FIRST_S

    def add(self, pid: int) -> None:
        """Count the starvation of one more process, from now on."""
        self._pids.append(pid)
        self._before |= self._read([pid])

    @property
    def due_s(self) -> float:
        """Seconds until the processes' times must be read again."""
        return max(0.0, self._due - self._now())

    def more_s(self, at_once: bool = False) -> float:
        """Return the seconds of starvation since the last reading; 0 if no reading is due.

        Args:
            at_once: Whether to look even if no look is due.
        """
        now = self._now()
        if (now < self._due and not at_once) or not self._pids:
            return 0.0
        times, before, wall_s = self._read(self._pids), self._before, now - self._looked
        is_first = self._looked < 0.0
        self._before, self._looked, self._due = dict(times), now, now + _EVERY_S
        if is_first:
            return 0.0
        self._ran_s += _ran_ns(before, times) / 1e9
        left_s = (PATIENCE - 1.0) * self._limit_s - self.missed_s
        more_s = min(missed_s(before, times, wall_s, self._processors), max(0.0, left_s))
        self.missed_s += more_s
        return more_s

    def blame_host(self, doing: str) -> None:
        """Raise `HostTooBusy` if the limit is over but the processes could not use it.

        Args:
            doing: Name of the work for the message, such as ``a build``.

        Raises:
            HostTooBusy: If they were starved.
        """
        most_s = (PATIENCE - 1.0) * self._limit_s
        if self.missed_s >= most_s > 0.0 and self._ran_s < self._limit_s:
            raise HostTooBusy(
                f"other programs kept {doing} from the processors for {self.missed_s:.0f} s; of "
                f"its limit of {self._limit_s:g} s it had {self._ran_s:.0f} s of processor time: "
                "judge again when the host is less busy"
            )


def missed_s(before: _Times, after: _Times, wall_s: float, processors: int) -> float:
    """Return the seconds of an interval in which ready threads got no processor.

    It is the time in which at least one thread was ready, times the share of the usable processors
    that the threads did not get.

    Args:
        before: Nanoseconds (on a processor, ready but waiting for one) by thread, at the beginning.
        after: Nanoseconds of the threads at the end, in the same form. A thread that is missing in
            `before` was born meanwhile.
        wall_s: Length of the interval.
        processors: Number of processors that the threads may use.
    """
    ran_ns, wanted_ns, longest_ns = 0, 0, 0
    for thread, (ran, waited) in after.items():
        ran_before, waited_before = before.get(thread, (0, 0))
        ran, waited = max(0, ran - ran_before), max(0, waited - waited_before)
        ran_ns, wanted_ns = ran_ns + ran, wanted_ns + ran + waited
        longest_ns = max(longest_ns, ran + waited)
    usable_ns = min(wanted_ns, processors * wall_s * 1e9)
    if usable_ns <= 0.0:
        return 0.0
    return min(wall_s, longest_ns / 1e9) * max(0.0, 1.0 - ran_ns / usable_ns)


def _ran_ns(before: _Times, after: _Times) -> int:
    return sum(max(0, ran - before.get(thread, (0, 0))[0]) for thread, (ran, _) in after.items())


def thread_times(folder: str) -> dict[str, tuple[int, int]]:
    """Return nanoseconds (on a processor, ready but waiting for one) of a process's threads.

    Empty if the process is gone, or if the system hides the times.

    Args:
        folder: The process's ``/proc/PID/task``.
    """
    times = {}
    with contextlib.suppress(OSError, ValueError):
        for task in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                ran, waited = read_small(f"{folder}/{task}/schedstat").split()[:2]
                times[task] = int(ran), int(waited)
    return times


def _tree_times(pids: Iterable[int]) -> dict[str, tuple[int, int]]:
    """Return the times of all threads of some processes and their descendants, by thread."""
    times: dict[str, tuple[int, int]] = {}
    todo = list(pids)
    while todo:
        pid = todo.pop()
        own = thread_times(f"/proc/{pid}/task")
        times |= own
        for task in own:
            with contextlib.suppress(OSError):
                todo += map(int, read_small(f"/proc/{pid}/task/{task}/children").split())
    return times


def read_small(path: str) -> bytes:
    """Return the contents of a small file, such as one of /proc.

    Takes half the time of `open`.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 14)
    finally:
        os.close(file)
