"""A lease on the CPU for everything that is judged on this machine, across processes.

Judged calls share it; timing takes it alone, so that nothing else of ours runs meanwhile. It is a
`flock`, which the kernel releases when its holder dies. It cannot keep other programs away.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from kernelgym.judge.stage_clock import StageClock

__all__ = ["Lease"]


class Lease:
    """A shared or exclusive lock on one file, made where it does not exist.

    Whoever wants it alone holds a second lock, the gate, while waiting; newcomers pass the gate
    first. Otherwise a steady stream of sharers would keep the other waiting for ever.

    Args:
        path: The file.
        clock: Is told what waiting takes.
    """

    def __init__(self, path: Path, clock: StageClock) -> None:
        self._path, self._gate = path, path.with_suffix(".gate")
        self._clock = clock

    def shared(self) -> contextlib.AbstractContextManager[None]:
        """Hold it together with others that do not mind company."""
        return self._clock.waiting(self._shared())

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Wait until nobody else holds it, and hold it alone."""
        return self._clock.waiting(self._exclusive())

    @contextlib.contextmanager
    def _shared(self) -> Iterator[None]:
        with _locked(self._gate, fcntl.LOCK_SH):
            lock = _lock(self._path, fcntl.LOCK_SH)
        try:
            yield
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        with _locked(self._gate, fcntl.LOCK_EX), _locked(self._path, fcntl.LOCK_EX):
            yield


@contextlib.contextmanager
def _locked(path: Path, mode: int) -> Iterator[None]:
    fd = _lock(path, mode)
    try:
        yield
    finally:
        os.close(fd)


def _lock(path: Path, mode: int) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, mode)
    return fd
