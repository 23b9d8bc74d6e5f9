"""Locks on files, which the kernel takes back from who dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_free", "locked", "take"]


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
