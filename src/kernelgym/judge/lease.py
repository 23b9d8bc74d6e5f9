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

__all__ = ["Lease"]


class Lease:
    """A shared or exclusive lock on one file, made where it does not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def shared(self) -> contextlib.AbstractContextManager[None]:
        """Hold it together with others that do not mind company."""
        return self._hold(fcntl.LOCK_SH)

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Wait until nobody else holds it, and hold it alone."""
        return self._hold(fcntl.LOCK_EX)

    @contextlib.contextmanager
    def _hold(self, mode: int) -> Iterator[None]:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, mode)
            yield
        finally:
            os.close(fd)
