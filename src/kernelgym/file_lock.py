"""Locks on files, which the operating system releases when the process that holds one ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def take(path: Path, mode: int, permissions: int = 0o600) -> int:
    """Return a descriptor that holds a `flock` on a file, which is made if it is not there.

    Args:
        path: The file.
        mode: Mode of `fcntl.flock`: ``LOCK_SH`` or ``LOCK_EX``, with ``LOCK_NB`` not to wait.
        permissions: Permissions of the file if it is made.

    Raises:
        BlockingIOError: If another process holds the lock, and `mode` has ``LOCK_NB``.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, permissions)
    try:
        fcntl.flock(fd, mode)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def locked(path: Path, mode: int) -> Iterator[None]:
    """Hold a lock for the length of the block; see `take`."""
    fd = take(path, mode)
    try:
        yield
    finally:
        os.close(fd)


def is_free(path: Path, mode: int) -> bool:
    """Return True if the lock can be taken without waiting."""
    try:
        os.close(take(path, mode | fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


class Turns:
    """Semaphore across processes: at most `count` of them do something at the same time.

    Args:
        folder: Folder of the lock files, the same for all processes.
        name: Name of what is limited; processes that give the same name share the limit.
        count: Number of processes that may do it at the same time.
    """

    def __init__(self, folder: Path, name: str, count: int) -> None:
        self._paths = [folder / f"{name}.turn{number}" for number in range(count)]

    @contextlib.contextmanager
    def taken(self) -> Iterator[bool]:
        """Hold a turn for the length of the block; yield False at once if all turns are taken."""
        with contextlib.ExitStack() as stack:
            for path in self._paths:
                try:
                    stack.callback(os.close, take(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
                except BlockingIOError:
                    continue
                yield True
                return
            yield False
