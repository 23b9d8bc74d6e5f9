"""Device memory of the trusted side that a reference's process reads where it lies.

What is drawn for a timed window has to lie where the process can read it. A kernel's is given a
copy, since what it does to it must not matter. The reference's process runs the problem's own code
and nothing else, so it may read the drawn values themselves, which spares copying gigabytes for
every window. They are drawn into allocations of their own: a handle opens a whole one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from kernelgym.judge.memory.arena import Arena, Region, spanned
from kernelgym.judge.untrusted import cuda_ipc

__all__ = ["Lent", "LentMemory"]


class LentMemory:
    """Allocations that nothing else is drawn into, on the current CUDA device.

    Whoever has opened any of them lets go of it before `close`.

    Args:
        move_ms: Returns what moving so many bytes takes the device, in milliseconds.
    """

    def __init__(self, move_ms: Callable[[int], float]) -> None:
        self._move_ms = move_ms
        self._pool: Any = None

    def copy_ms(self, size: int) -> float:
        """Return what a copy of so many bytes takes that is spared, in milliseconds."""
        return self._move_ms(2 * size)

    def drawing(self) -> AbstractContextManager[Any]:
        """Within it, all tensors of this thread are made there."""
        if self._pool is None:
            self._pool = torch.cuda.MemPool()
        context: AbstractContextManager[Any] = torch.cuda.use_mem_pool(self._pool)
        return context

    def close(self) -> None:
        """Give them back, once no tensor lies there any more."""
        self._pool = None


class Lent(Arena):
    """One of these allocations, as an arena that another process maps.

    Args:
        number: Tells it from others that the process maps at the same time.
        address: Where it begins.
        size: Its bytes.

    Raises:
        DriverError: If it cannot be shared, as what PyTorch's allocator makes of segments that it
            expands later.
    """

    def __init__(self, number: int, address: int, size: int) -> None:
        self.bytes, self._number, self._address = size, number, address
        self._shared = cuda_ipc.share(address)

    def fits(self, tensors: int, total_bytes: int) -> bool:
        """Never: nothing is placed here."""
        return False

    def region(self, tensor: torch.Tensor) -> Region:
        """Return where a tensor lies that was drawn there."""
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        count = spanned(shape, strides)
        offset = tensor.data_ptr() - self._address
        return Region(offset, tensor.dtype, shape, strides, count, self._number)

    def handle(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return what the other process maps it by."""
        return {"bytes": self.bytes, "memory": self._shared, "arena": self._number}, ()

    def span(self) -> tuple[int, int]:
        """Return its address on the device, and its bytes."""
        return self._address, self.bytes

    def close(self) -> None:
        """Do nothing: it stays with the allocator."""
