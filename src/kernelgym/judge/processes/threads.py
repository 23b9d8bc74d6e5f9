"""Counts, halts and resumes the threads of a candidate from outside.

Contract:

- everything rests on `/proc` and signals of the operating system, which the candidate cannot
  influence;
- a child of the candidate may send it SIGCONT while it is halted; `Threads.resume` detects that
  from the time that the candidate's threads have run.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kernelgym.judge.starvation import read_small, thread_times

# Run time that a halted process may seem to gain: with `wchan` readable, and without. A timer tick
# lasts 4 ms, and a clock read while its thread leaves the processor is right after the next tick.
_ASLEEP_NS, _UNTOLD_NS = 200_000, 4_000_000
_ALL_THREADS = 2  # clock_getcpuclockid(3): the scheduler's clock of a process, its number inverted
_SETTLE_S = 1e-4
_LEAVES_S = 0.02  # far longer than a stopped thread needs to leave the processor
_STOPPED = frozenset("TtZX")
_LEAVING = "leaving"
_NOWHERE = b"0"  # `wchan` of a thread that is on a processor, or that this process may not inspect
# Linux version. Before it, `wchan` shows a stopped thread as waiting while it still leaves the
# processor.
_TELLS_SINCE = (5, 16)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Processor times of a process's threads, in nanoseconds, as the system counts them."""

    ran_ns: int
    """Time on processors of the whole process, ended threads included."""
    by_thread: Mapping[str, tuple[int, int]]
    """Pairs (time on a processor, time ready but waiting for one) of the threads that exist."""


class Threads:
    """All threads of one process.

    Args:
        pid: Process id; the process must exist.
    """

    def __init__(self, pid: int) -> None:
        self._folder = f"/proc/{pid}/task"
        self._clock = (~pid << 3) | _ALL_THREADS
        self._pidfd = os.pidfd_open(pid)
        self._ran_ns: int | None = None
        self._tells = _release() >= _TELLS_SINCE and os.path.exists(f"{self._folder}/{pid}/wchan")

    def close(self) -> None:
        """Close the process descriptor."""
        os.close(self._pidfd)

    def halt(self, patience_s: float) -> bool:
        """Halt all threads; if that takes too long, resume and return False."""
        self._signal(signal.SIGSTOP)
        deadline, stopped = time.monotonic() + patience_s, math.inf
        while not (states := self._states()) <= _STOPPED:
            now = time.monotonic()
            if states <= _STOPPED | {_LEAVING}:
                stopped = min(stopped, now)
            if now > stopped + _LEAVES_S:
                self._tells = False  # this process may not read `wchan`
            if now > deadline:
                return self._give_up()
            time.sleep(0)
        self._ran_ns = self._run_ns()
        # Without `wchan`, wait until the run time no longer grows: nearly as good a sign.
        while not self._tells:
            time.sleep(_SETTLE_S)
            before, self._ran_ns = self._ran_ns, self._run_ns()
            if self._ran_ns == before:
                break
            if time.monotonic() > deadline:
                return self._give_up()
        return True

    def _give_up(self) -> bool:
        self._ran_ns = None
        self._signal(signal.SIGCONT)
        return False

    def resume(self) -> bool:
        """Resume all threads; return False instead if they ran while halted."""
        borne_ns = _ASLEEP_NS if self._tells else _UNTOLD_NS
        if self._ran_ns is not None and self._run_ns() > self._ran_ns + borne_ns:
            return False
        self._ran_ns = None
        self._signal(signal.SIGCONT)
        return True

    def count(self) -> int:
        """Return the number of threads and child processes; 0 if gone."""
        count = 0
        with contextlib.suppress(OSError):
            for task in os.listdir(self._folder):
                count += 1
                with contextlib.suppress(OSError):
                    count += len(read_small(f"{self._folder}/{task}/children").split())
        return count

    def run_times(self) -> RunTimes | None:
        """Return the threads' times so far; None if the system hides them."""
        try:
            ran_ns = time.clock_gettime_ns(self._clock)
        except OSError:
            return None
        by_thread = thread_times(self._folder)
        return RunTimes(ran_ns, by_thread) if by_thread else None

    def _run_ns(self) -> int:
        """Return the nanoseconds that the threads have run so far; 0 if unknown.

        Called at the start of a timed window. Reading a file takes 3 us or more per thread, which
        would count against a candidate with many threads, so the process's clock is read instead
        where there is one.
        """
        # Some systems have no such clock, and a process that is gone has none.
        with contextlib.suppress(OSError):
            return time.clock_gettime_ns(self._clock)
        total = 0
        with contextlib.suppress(OSError):
            for task in os.listdir(self._folder):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    total += int(read_small(f"{self._folder}/{task}/schedstat").split()[0])
        return total

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _states(self) -> set[str]:
        """Return the states of all threads; `_LEAVING` for one that may still be on a processor.

        A thread whose state is "stopped" may still be on the processor, for as long as an interrupt
        or a busy host keeps it there. Its clock may be updated only when it leaves, and the time
        that it ran before would then seem to be run while it was halted. `wchan` shows where the
        thread waits only once it has left.
        """
        states = set()
        with contextlib.suppress(OSError):
            for task in os.listdir(self._folder):
                with contextlib.suppress(OSError, IndexError):
                    stat = read_small(f"{self._folder}/{task}/stat")
                    state = stat.rpartition(b")")[2].split()[0].decode()
                    if state in "Tt" and self._tells and not self._is_off(task):
                        state = _LEAVING
                    states.add(state)
        return states

    def _is_off(self, task: str) -> bool:
        """Return True if a stopped thread has left the processor."""
        with contextlib.suppress(OSError):  # the thread is gone
            return read_small(f"{self._folder}/{task}/wchan") != _NOWHERE
        return True


def _release() -> tuple[int, ...]:
    """Return the Linux kernel's version as (major, minor)."""
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
