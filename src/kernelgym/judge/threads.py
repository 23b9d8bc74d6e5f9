"""The threads of another process, seen from outside: counted, halted, let go on.

Contract: what the kernel tells in `/proc` and does for a signal; the process has no say in it. Only
its own children may send it on its way, and `Threads.resume` notices that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

__all__ = ["Threads"]

_ASLEEP_NS = 200_000
_ALL_THREADS = 2  # clock_getcpuclockid(3): the scheduler's clock of a process, its number inverted
_SETTLE_S = 1e-4


class Threads:
    """All threads of one process.

    Args:
        pid: Its process id; the process is not yet gone.
    """

    def __init__(self, pid: int) -> None:
        self._folder = f"/proc/{pid}/task"
        self._clock = (~pid << 3) | _ALL_THREADS
        self._pidfd = os.pidfd_open(pid)
        self._ran_ns: int | None = None

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._pidfd)

    def halt(self, patience_s: float) -> bool:
        """Halt all of them; False, and they go on, if they do not stand still in time."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + patience_s
        while self._state() not in "TtZX":
            if time.monotonic() > deadline:
                return self._give_up()
            time.sleep(0)
        # A thread that is called stopped may still be on its way off the processor, for as long
        # as a busy host does not run that: it stands still once its time stands still.
        ran_ns = self._run_ns()
        while True:
            time.sleep(_SETTLE_S)
            before, ran_ns = ran_ns, self._run_ns()
            if ran_ns == before:
                self._ran_ns = ran_ns
                return True
            if time.monotonic() > deadline:
                return self._give_up()

    def _give_up(self) -> bool:
        self._ran_ns = None
        self._signal(signal.SIGCONT)
        return False

    def resume(self) -> bool:
        """Let them go on; False, and they do not, if they have run since they were halted."""
        if self._ran_ns is not None and self._run_ns() > self._ran_ns + _ASLEEP_NS:
            return False
        self._ran_ns = None
        self._signal(signal.SIGCONT)
        return True

    def count(self) -> int:
        """Count them and the process's children; 0 if it is gone."""
        count = 0
        with contextlib.suppress(OSError):
            for task in os.listdir(self._folder):
                count += 1
                with contextlib.suppress(OSError):
                    count += len(_read(f"{self._folder}/{task}/children").split())
        return count

    def _run_ns(self) -> int:
        """Return for how long they have run so far; 0 where the kernel does not say.

        Asked at the start of a window, where files take 3 us or more for every thread: that would
        be on the account of who has many.
        """
        with contextlib.suppress(OSError):  # not known everywhere, and of no process that is gone
            return time.clock_gettime_ns(self._clock)
        total = 0
        with contextlib.suppress(OSError):
            for task in os.listdir(self._folder):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    total += int(_read(f"{self._folder}/{task}/schedstat").split()[0])
        return total

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _state(self) -> str:
        """Return the state of the one of them that is furthest from standing still."""
        states = "X"
        with contextlib.suppress(OSError):
            for task in os.listdir(self._folder):
                with contextlib.suppress(OSError, IndexError):
                    stat = _read(f"{self._folder}/{task}/stat")
                    states += stat.rpartition(b")")[2].split()[0].decode()
        return next((state for state in states if state not in "TtZX"), "T")


def _read(path: str) -> bytes:
    """Return what a small file says; half of what `open` takes, for what is asked so often."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 14)
    finally:
        os.close(file)
