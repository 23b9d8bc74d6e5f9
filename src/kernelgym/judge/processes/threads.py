"""The threads of another process, seen from outside: counted, halted, let go on.

Contract: what the kernel tells in `/proc` and does for a signal; the process has no say in it. Only
its own children may send it on its way, and `Threads.resume` notices that.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import time

__all__ = ["Threads"]

_ASLEEP_NS, _UNTOLD_NS = 200_000, 4_000_000  # the latter is a tick, after which clocks are right
_ALL_THREADS = 2  # clock_getcpuclockid(3): the scheduler's clock of a process, its number inverted
_SETTLE_S = 1e-4
_LEAVES_S = 0.02  # far longer than it takes a thread to leave the processor
_STOPPED = frozenset("TtZX")
_LEAVING = "leaving"
_NOWHERE = b"0"  # where a thread waits that is on a processor, or that may not be asked
_TELLS_SINCE = (5, 16)  # Linux; before, a stopped thread is said to wait while it still leaves


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
        self._tells = _release() >= _TELLS_SINCE and os.path.exists(f"{self._folder}/{pid}/wchan")

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._pidfd)

    def halt(self, patience_s: float) -> bool:
        """Halt all of them; False, and they go on, if they do not stand still in time."""
        self._signal(signal.SIGSTOP)
        deadline, stopped = time.monotonic() + patience_s, math.inf
        while not (states := self._states()) <= _STOPPED:
            now = time.monotonic()
            if states <= _STOPPED | {_LEAVING}:
                stopped = min(stopped, now)
            if now > stopped + _LEAVES_S:
                self._tells = False  # it may not be asked
            if now > deadline:
                return self._give_up()
            time.sleep(0)
        self._ran_ns = self._run_ns()
        while not self._tells:  # its clock stands still, which is nearly as good
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
        """Let them go on; False, and they do not, if they have run since they were halted."""
        borne_ns = _ASLEEP_NS if self._tells else _UNTOLD_NS
        if self._ran_ns is not None and self._run_ns() > self._ran_ns + borne_ns:
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

    def _states(self) -> set[str]:
        """Return the states that they are in, `_LEAVING` among them.

        A thread that is called stopped may still be on its way off the processor, for as long as
        an interrupt or a busy host keeps it there, and its clock may stand still until it is off:
        what it ran would seem to be run while it was halted. Where it waits is told only then.
        """
        states = set()
        with contextlib.suppress(OSError):
            for task in os.listdir(self._folder):
                with contextlib.suppress(OSError, IndexError):
                    stat = _read(f"{self._folder}/{task}/stat")
                    state = stat.rpartition(b")")[2].split()[0].decode()
                    if state in "Tt" and self._tells and not self._is_off(task):
                        state = _LEAVING
                    states.add(state)
        return states

    def _is_off(self, task: str) -> bool:
        """Say whether a stopped thread is known to have left the processor."""
        with contextlib.suppress(OSError):  # it is gone
            return _read(f"{self._folder}/{task}/wchan") != _NOWHERE
        return True


def _read(path: str) -> bytes:
    """Return what a small file says; half of what `open` takes, for what is asked so often."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 14)
    finally:
        os.close(file)


def _release() -> tuple[int, ...]:
    """Return the kernel's version, major and minor."""
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
