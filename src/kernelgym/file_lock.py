"""Locks on files, which the operating system releases when the process that holds one ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def take(path: Path, mode: int) -> int:
    """Return a descriptor that holds a `flock` on a file, which is made if it is not there.

    Args:
        path: The file.
        mode: Of `fcntl`: ``LOCK_SH`` or ``LOCK_EX``, with ``LOCK_NB`` not to wait.

    Raises:
        BlockingIOError: If it is not to be had without waiting.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """Say whether a lock could be had at once."""
    try:
        os.close(take(path, mode | fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


class Turns:
    """So many turns, shared by all processes that name them alike.

    Args:
        folder: Folder that all of them share.
        name: What the turns are at.
        count: How many there are.
    """

    def __init__(self, folder: Path, name: str, count: int) -> None:
        self._paths = [folder / f"{name}.turn{number}" for number in range(count)]

    @contextlib.contextmanager
    def taken(self) -> Iterator[bool]:
        """Hold a turn for the length of the block; says whether there was one, and never waits."""
        with contextlib.ExitStack() as stack:
            for path in self._paths:
                try:
                    stack.callback(os.close, take(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
                except BlockingIOError:
                    continue
                yield True
                return
            yield False
