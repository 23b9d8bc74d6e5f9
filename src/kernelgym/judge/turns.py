"""Turns at something that only so many processes of a machine should do at a time.

Each turn is a file; who holds its `flock` has the turn, and the kernel takes it back when he dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from kernelgym.judge.locks import take

__all__ = ["Turns"]


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
