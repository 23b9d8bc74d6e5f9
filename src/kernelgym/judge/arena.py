"""Shared memory that the trusted side owns and a candidate maps: inputs out, outputs back.

Regions are laid out with wide gaps, so that an access past a tensor's end lands in none. The
memory is sealed: a candidate that shrinks it would otherwise kill the trusted side with SIGBUS.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Arena", "Region", "encode"]

_GAP_BYTES = 1 << 20  # untouched pages of a memory file take no memory
_F_ADD_SEALS, _SEAL_ALL_BUT_WRITE = 1033, 1 | 2 | 4
_POISON_FLOAT, _POISON_OTHER = 0xFF, 0xA5  # NaN; a large negative number


@dataclass(frozen=True, slots=True)
class Region:
    """Where one tensor lies."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    count: int
    """Elements its storage spans."""

    def to_json(self) -> dict[str, Any]:
        """Return what a candidate needs to lay a tensor over the region."""
        return {
            "offset": self.offset,
            "dtype": str(self.dtype).removeprefix("torch."),
            "shape": list(self.shape),
            "strides": list(self.strides),
            "count": self.count,
        }


class Arena:
    """A sealed memory file with room for some tensors, mapped by both sides.

    Args:
        tensors: Number of tensors it will hold.
        total_bytes: Their bytes together.
    """

    def __init__(self, tensors: int, total_bytes: int) -> None:
        self.bytes = max(mmap.PAGESIZE, total_bytes + (tensors + 1) * (_GAP_BYTES + 64))
        self.bytes += -self.bytes % mmap.PAGESIZE
        self.fd = os.memfd_create("kernelgym", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.bytes)
        fcntl.fcntl(self.fd, _F_ADD_SEALS, _SEAL_ALL_BUT_WRITE)
        self._memory = mmap.mmap(self.fd, self.bytes, mmap.MAP_SHARED)
        self._finalizer = weakref.finalize(self, os.close, self.fd)
        self._next = _GAP_BYTES

    def place(self, like: torch.Tensor, contiguous: bool = False) -> Region:
        """Reserve a region for a tensor of the same type, shape and strides as `like`."""
        strides = like.stride()
        if contiguous:
            strides = torch.empty(like.shape, device="meta").stride()
        spans = [(size - 1) * step for size, step in zip(like.shape, strides, strict=True)]
        count = 0 if like.numel() == 0 else 1 + sum(spans)
        region = Region(self._next, like.dtype, tuple(like.shape), tuple(strides), count)
        size = count * like.element_size()
        self._next += size + _GAP_BYTES
        self._next += -self._next % 64  # torch aligns its own allocations to 64 bytes
        if self._next > self.bytes:
            raise ValueError(f"the arena of {self.bytes} bytes is full")
        return region

    def view(self, region: Region) -> torch.Tensor:
        """Return a tensor over a region, sharing its memory."""
        if region.count == 0:
            return torch.empty_strided(region.shape, region.strides, dtype=region.dtype)
        flat = torch.frombuffer(
            self._memory, dtype=region.dtype, count=region.count, offset=region.offset
        )
        return flat.as_strided(region.shape, region.strides)

    def poison(self, region: Region) -> None:
        """Fill a region so that an output never written cannot be right."""
        if region.count:
            size = region.count * region.dtype.itemsize
            torch.frombuffer(
                self._memory, dtype=torch.uint8, count=size, offset=region.offset
            ).fill_(_POISON_FLOAT if region.dtype.is_floating_point else _POISON_OTHER)

    def close(self) -> None:
        """Give the memory back, once views of it are gone too. Closing twice is harmless."""
        self._finalizer()


def encode(value: Any, place: Any) -> Any:
    """Encode an argument for a candidate: tensors become regions, the rest JSON.

    Args:
        value: Tensor, number, string, None, dtype, or a list, tuple or dict of such.
        place: Called with each tensor; returns its `Region`.

    Raises:
        TypeError: If a value cannot be handed to another process.
    """
    if isinstance(value, torch.Tensor):
        return {"tensor": place(value).to_json()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, dict):
        return {"dict": [[key, encode(item, place)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encode(item, place) for item in value]}
    raise TypeError(f"an argument of type {type(value).__name__} cannot be given to a kernel")
