"""A lock on one device for everything that is judged on this machine, across processes.

Judged calls share it; timing takes it alone, so that nothing else of ours runs meanwhile. Who holds
it for long, for a kernel that is compiled or hangs, is told that another waits
(`DeviceLock.is_wanted`) and may let him go first (`DeviceLock.released`). It is a `flock`, which
the kernel releases when its holder dies. It cannot keep other programs away.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelgym.judge.file_lock import is_free, locked, take
from kernelgym.judge.stage_clock import StageClock

__all__ = ["DeviceLock"]

_ONE_WAIT_S = 2.0  # looks in vain that are less apart tell of one wait


class DeviceLock:
    """A shared or exclusive lock on one file, made where it does not exist.

    Whoever wants it alone holds a second lock, the gate, while waiting; newcomers pass the gate
    first. Otherwise a steady stream of sharers would keep the other waiting for ever.

    One object is for one thread. A share that is held already may be asked for again, within.

    Args:
        path: The file.
        clock: Is told what waiting takes.
    """

    def __init__(self, path: Path, clock: StageClock) -> None:
        self._path, self._gate = path, path.with_suffix(".gate")
        self._half_done = path.with_suffix(".halfway")
        self._blocked_file = path.with_suffix(".vain")
        self._clock = clock
        self._held = -1  # descriptor of the shared lock
        self.before_release: Callable[[], object] = lambda: None
        """Ends what others must not be timed beside, before a share is ceded."""

    def shared(self) -> contextlib.AbstractContextManager[None]:
        """Hold it together with others that do not mind company."""
        if self.is_shared:
            return contextlib.nullcontext()
        return self._clock.waiting(self._shared())

    @contextlib.contextmanager
    def shared_now(self) -> Iterator[bool]:
        """Hold it together with others if that takes no waiting; says whether it is held."""
        if self.is_shared:
            yield True
            return
        try:
            with locked(self._gate, fcntl.LOCK_SH | fcntl.LOCK_NB):
                self._held = take(self._path, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            self._drop()

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Wait until nobody else holds it, and hold it alone."""
        return self._clock.waiting(self._exclusive())

    @property
    def is_shared(self) -> bool:
        """Whether this object holds it together with others."""
        return self._held >= 0

    def is_wanted(self) -> bool:
        """Whether it is held here, together with others, while somebody waits to hold it alone."""
        return self.is_shared and not is_free(self._gate, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Give up one's share for the length of the block, and wait for it again at its end.

        Whatever the share was for must stand still meanwhile.
        """
        self.before_release()
        self._drop()
        try:
            yield
        finally:
            with self._clock.stage("queue"):
                self._take()

    @contextlib.contextmanager
    def halfway(self) -> Iterator[None]:
        """Tell others that work of ours stands still half done, and may go on upon the device."""
        with locked(self._half_done, fcntl.LOCK_SH):
            yield

    def is_halfway(self) -> bool:
        """Whether anybody's work stands still half done."""
        return not is_free(self._half_done, fcntl.LOCK_EX)

    def note_device_blocked(self, seconds: float) -> None:
        """Say for how long it was held alone, up to now, while the device was kept busy.

        What has passed since somebody said so before counts as well, if it is not long.
        """
        now, (total_s, before) = time.monotonic(), self._read_blocked()
        if 0.0 <= now - seconds - before < _ONE_WAIT_S:
            seconds = now - before
        new = self._blocked_file.with_name(f"{self._blocked_file.name}.{os.getpid()}")
        new.write_text(f"{total_s + seconds!r} {now!r}", encoding="ascii")
        new.replace(self._blocked_file)

    def device_blocked_s(self) -> float:
        """Return for how long, all in all, anybody waited while the device was kept busy."""
        return self._read_blocked()[0]

    def since_device_blocked_s(self) -> float:
        """Return how long ago the device was last seen to be kept busy."""
        ago = time.monotonic() - self._read_blocked()[1]
        return ago if ago >= 0.0 else math.inf  # told before this machine was started

    def _read_blocked(self) -> tuple[float, float]:
        try:
            total_s, moment = self._blocked_file.read_text(encoding="ascii").split()
            return float(total_s), float(moment)
        except (OSError, ValueError):  # not there, or damaged
            return 0.0, -math.inf

    @contextlib.contextmanager
    def _shared(self) -> Iterator[None]:
        self._take()
        try:
            yield
        finally:
            self._drop()

    def _take(self) -> None:
        with locked(self._gate, fcntl.LOCK_SH):
            self._held = take(self._path, fcntl.LOCK_SH)

    def _drop(self) -> None:
        held, self._held = self._held, -1
        os.close(held)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        with locked(self._gate, fcntl.LOCK_EX), locked(self._path, fcntl.LOCK_EX):
            yield
