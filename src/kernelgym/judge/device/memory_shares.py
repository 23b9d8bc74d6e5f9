"""A device's memory budget: divides the memory among the workers that share the device.

Contract: each of 16 equal parts of the memory is a file, and a worker that holds the `flock` on a
file may use that part. The operating system gives the parts back when their holder dies.

Does not cover which problems are judged at all: `kernelgym.judging_memory` has the budget of one
kernel. Nor what a kernel allocates by itself: the judge cannot know that beforehand. The budget
keeps honest kernels of several workers from running out of memory together; it bounds no kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

from kernelgym.file_lock import take
from kernelgym.judging_memory import kernel_bytes

_PARTS = 16
_POLL_S = 0.002
_BETWEEN = 2  # intermediate results, each as large as an output
_CONTEXTS_OF = 14  # one part in 14 of the device's memory is left to the processes' contexts


def usable_bytes(total_bytes: int) -> int:
    """Return the device memory that the contexts of its processes leave free."""
    return total_bytes * (_CONTEXTS_OF - 1) // _CONTEXTS_OF


def holds_all(total_bytes: int, inputs: int, outputs: int, kernels: int = 1) -> bool:
    """Return True if a device can hold the kernels of a problem and one baseline at once.

    Intermediate results of all of them are allowed for.

    Args:
        total_bytes: The device's memory.
        inputs: Bytes of one call's inputs.
        outputs: Bytes of its outputs.
        kernels: Number of kernels.
    """
    needed = kernel_bytes(inputs, outputs, kernels) + _BETWEEN * outputs
    return needed <= usable_bytes(total_bytes)


class MemoryBudget:
    """The memory of one device in 16 equal parts.

    Args:
        folder: Folder that all workers share.
        owner: Name of the device in file names.
        total_bytes: Memory to divide.
    """

    def __init__(self, folder: Path, owner: str, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._paths = [folder / f"{owner}.part{number}" for number in range(_PARTS)]
        self._gate = folder / f"{owner}.parts"

    def parts(self, wanted_bytes: int) -> int:
        """Return the number of parts of the memory that hold `wanted_bytes`, at most all."""
        return max(1, min(_PARTS, math.ceil(wanted_bytes * _PARTS / self.total_bytes)))

    @contextlib.contextmanager
    def taken(self, wanted_bytes: int) -> Iterator[None]:
        """Wait in turn for parts of the memory, and hold them during the block."""
        held: list[int] = []
        with contextlib.ExitStack() as stack:
            # Later workers wait at the gate. Without it, small requests would overtake a worker
            # that waits for many parts.
            gate = take(self._gate, fcntl.LOCK_EX)
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
        """Take `wanted` free parts of the memory; return False, holding none, if fewer are free."""
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
