"""A device's memory, rationed among the workers that share it, across processes.

Each part of the memory is a file; who holds its `flock` may use it. Parts come back when their
holder dies. What a kernel allocates by itself cannot be known beforehand, so this keeps honest
work of several workers from colliding; it does not bound anybody.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

from kernelgym.judge.file_lock import take

__all__ = ["SPARE_BYTES", "MemoryBudget", "holds_both", "kernel_bytes", "usable_bytes"]

SPARE_BYTES = 1 << 30
"""What a kernel and the judge take beside inputs and outputs."""

_PARTS = 16
_POLL_S = 0.002
_INPUTS, _OUTPUTS = 3, 5  # drawn, and both sides'; the reference's, the kernel's, copies of theirs
_BETWEEN = 2  # outputs that a reference or a kernel may hold on its way to one
_CONTEXTS_OF = 14


def kernel_bytes(inputs: int, outputs: int) -> int:
    """Return what a kernel, and what it is compared with, take of a device at the most.

    Args:
        inputs: Bytes of one call's inputs.
        outputs: Bytes of its outputs.
    """
    return _INPUTS * inputs + _OUTPUTS * outputs + SPARE_BYTES


def usable_bytes(total_bytes: int) -> int:
    """Return what of a device's memory its processes' contexts leave."""
    return total_bytes * (_CONTEXTS_OF - 1) // _CONTEXTS_OF


def holds_both(total_bytes: int, inputs: int, outputs: int) -> bool:
    """Say whether a device holds a kernel and what it is timed against, with some to spare.

    Args:
        total_bytes: The device's memory.
        inputs: Bytes of one call's inputs.
        outputs: Bytes of its outputs.
    """
    return kernel_bytes(inputs, outputs) + _BETWEEN * outputs <= usable_bytes(total_bytes)


class MemoryBudget:
    """The memory of one device in 16 equal parts.

    Args:
        folder: Folder that all workers share.
        owner: Names the device.
        total_bytes: Its memory.
    """

    def __init__(self, folder: Path, owner: str, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._paths = [folder / f"{owner}.part{number}" for number in range(_PARTS)]
        self._gate = folder / f"{owner}.parts"

    def parts(self, wanted_bytes: int) -> int:
        """Return how many parts hold so many bytes; all of them at the most."""
        return max(1, min(_PARTS, math.ceil(wanted_bytes * _PARTS / self.total_bytes)))

    @contextlib.contextmanager
    def taken(self, wanted_bytes: int) -> Iterator[None]:
        """Wait until there is room for so many bytes, first come, first served, and hold it."""
        held: list[int] = []
        with contextlib.ExitStack() as stack:
            gate = take(self._gate, fcntl.LOCK_EX)  # who waits for much is not overtaken
            try:
                while not self._collect(held, self.parts(wanted_bytes)):
                    time.sleep(_POLL_S)
                for fd in held:
                    stack.callback(os.close, fd)
                held = []
            finally:
                os.close(gate)
                for fd in held:
                    os.close(fd)
            yield

    def _collect(self, held: list[int], wanted: int) -> bool:
        """Take what is free; False, with nothing held, if that is too little."""
        for path in self._paths:
            if len(held) == wanted:
                break
            with contextlib.suppress(BlockingIOError):
                held.append(take(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
        if len(held) == wanted:
            return True
        while held:
            os.close(held.pop())
        return False
