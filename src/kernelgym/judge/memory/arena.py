"""Arenas: memory for inputs and outputs that worker and candidate map.

Contract:
- The worker owns the memory: it allocates and frees it.
- Regions are laid out with wide gaps, so that an access a little past a tensor's end reaches no
  other tensor.
- On the host an arena is a sealed memory file: without the seal, a candidate could shrink the file
  and so kill the worker with SIGBUS.
- On a CUDA device an arena is an allocation of its own, shared by CUDA IPC.

Not covered: which tensors lie in an arena, and when (`kernelgym.judge.session.call_buffers`).
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelgym.judge.out_of_memory import our_failure
from kernelgym.judge.untrusted import cuda_ipc

_HOST_GAP_BYTES = 1 << 20  # wide gaps cost nothing: untouched pages of the file take no memory
_DEVICE_GAP_BYTES = 1 << 16
_DEVICE_PAGE_BYTES = 2 << 20  # the smallest unit that the driver maps
_F_ADD_SEALS, _SEAL_ALL_BUT_WRITE = 1033, 1 | 2 | 4
_POISON_FLOAT, _POISON_OTHER = 0xFF, 0xA5  # NaN; a large negative number


@dataclass(frozen=True, slots=True)
class ArenaRegion:
    """The place of one tensor in an arena."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    count: int
    """Number of elements that the tensor's storage spans, gaps between rows included."""
    arena: int = 0
    """Number of the arena that holds the region, among those that a process maps at the same
    time."""

    def to_json(self) -> dict[str, Any]:
        """Return the region as JSON that a candidate makes a tensor of."""
        return {
            "offset": self.offset,
            "dtype": str(self.dtype).removeprefix("torch."),
            "shape": list(self.shape),
            "strides": list(self.strides),
            "count": self.count,
            "arena": self.arena,
        }


def _spanned(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements that a tensor's storage spans, with gaps."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))


class Arena:
    """Memory for a set of tensors that the worker and the candidate both map; made by `new_arena`.

    Subclasses decide where the memory lies and how the other process maps it.
    """

    _gap_bytes = _HOST_GAP_BYTES
    _alignment = 64  # as torch's allocations on the host, so that kernels find usual addresses

    _page_bytes = mmap.PAGESIZE

    def __init__(self, tensors: int, total_bytes: int, number: int = 0) -> None:
        self.bytes = self._needed_bytes(tensors, total_bytes)
        self._number = number
        self._next = self._gap_bytes

    def _needed_bytes(self, tensors: int, total_bytes: int) -> int:
        room = total_bytes + (tensors + 1) * (self._gap_bytes + self._alignment)
        return max(self._page_bytes, room + -room % self._page_bytes)

    def fits(self, tensors: int, total_bytes: int) -> bool:
        """Return True if a new arena for these tensors would have the size of this one."""
        return self.bytes == self._needed_bytes(tensors, total_bytes)

    def clear(self) -> None:
        """Free all regions of the arena for new tensors, without erasing the memory."""
        self._next = self._gap_bytes

    def place(self, like: torch.Tensor, contiguous: bool = False) -> ArenaRegion:
        """Reserve a region for a tensor with the layout of `like`.

        Args:
            like: Tensor with the type, shape and strides.
            contiguous: Whether to use contiguous strides instead.

        Raises:
            ValueError: If the arena is full.
        """
        strides = like.stride()
        if contiguous:
            strides = torch.empty(like.shape, device="meta").stride()
        count = _spanned(like.shape, strides)
        shape, dtype = tuple(like.shape), like.dtype
        region = ArenaRegion(self._next, dtype, shape, tuple(strides), count, self._number)
        size = count * like.element_size()
        self._next += size + self._gap_bytes
        self._next += -self._next % self._alignment
        if self._next > self.bytes:
            raise ValueError(f"the arena of {self.bytes} bytes is full")
        return region

    def view(self, region: ArenaRegion) -> torch.Tensor:
        """Return a tensor that shares a region's memory."""
        raise NotImplementedError

    def handle(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return the message fields and descriptors with which another process maps the arena."""
        raise NotImplementedError

    def span(self) -> tuple[int, int]:
        """Return the arena's address on the device, and its size in bytes."""
        raise NotImplementedError

    def poison(self, region: ArenaRegion) -> None:
        """Fill an output's region with values that are wrong unless the kernel writes over them."""
        if region.count:
            value = _POISON_FLOAT if region.dtype.is_floating_point else _POISON_OTHER
            self._bytes_of(region).fill_(value)

    def _bytes_of(self, region: ArenaRegion) -> torch.Tensor:
        raise NotImplementedError

    def close(self) -> None:
        """Free the arena once its views are gone; closing twice is harmless."""
        raise NotImplementedError


class _HostArena(Arena):
    """Arena in host memory: a sealed memory file."""

    def __init__(self, tensors: int, total_bytes: int, number: int = 0) -> None:
        super().__init__(tensors, total_bytes, number)
        fd = self._fd = os.memfd_create("kernelgym", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, self.bytes)
        fcntl.fcntl(fd, _F_ADD_SEALS, _SEAL_ALL_BUT_WRITE)
        self._memory = mmap.mmap(fd, self.bytes, mmap.MAP_SHARED)
        self._finalizer = weakref.finalize(self, os.close, fd)

    def view(self, region: ArenaRegion) -> torch.Tensor:
        if region.count == 0:
            return torch.empty_strided(region.shape, region.strides, dtype=region.dtype)
        flat = torch.frombuffer(
            self._memory, dtype=region.dtype, count=region.count, offset=region.offset
        )
        return flat.as_strided(region.shape, region.strides)

    def handle(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        return {"bytes": self.bytes}, (self._fd,)

    def _bytes_of(self, region: ArenaRegion) -> torch.Tensor:
        size = region.count * region.dtype.itemsize
        return torch.frombuffer(self._memory, dtype=torch.uint8, count=size, offset=region.offset)

    def close(self) -> None:
        self._finalizer()


class _DeviceArena(Arena):
    """Arena on a CUDA device: an allocation of its own, shared by CUDA IPC."""

    _gap_bytes = _DEVICE_GAP_BYTES
    _alignment = 512  # as torch's allocator: Triton compiles other kernels for less alignment
    _page_bytes = _DEVICE_PAGE_BYTES

    def __init__(self, tensors: int, total_bytes: int, device: torch.device, number: int) -> None:
        super().__init__(tensors, total_bytes, number)
        self._device = device
        self._address = cuda_ipc.allocate(self.bytes)
        self._finalizer = weakref.finalize(self, cuda_ipc.free, self._address)
        # Without this, a kernel could read what lay there before, such as expected outputs.
        cuda_ipc.view(self._address, self.bytes, device).fill_(_POISON_FLOAT)

    def view(self, region: ArenaRegion) -> torch.Tensor:
        if region.count == 0:
            return torch.empty_strided(
                region.shape, region.strides, dtype=region.dtype, device=self._device
            )
        flat = self._bytes_of(region).view(region.dtype)
        return flat.as_strided(region.shape, region.strides)

    def handle(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        shared = cuda_ipc.share(self._address)
        return {"bytes": self.bytes, "memory": shared, "arena": self._number}, ()

    def span(self) -> tuple[int, int]:
        return self._address, self.bytes

    def _bytes_of(self, region: ArenaRegion) -> torch.Tensor:
        size = region.count * region.dtype.itemsize
        return cuda_ipc.view(self._address + region.offset, size, self._device)

    def close(self) -> None:
        self._finalizer()


def new_arena(tensors: int, total_bytes: int, device: torch.device, number: int = 0) -> Arena:
    """Return a new arena on a device.

    Args:
        tensors: Number of tensors that the arena will hold.
        total_bytes: Sum of their sizes in bytes.
        device: The device of the memory.
        number: Number that distinguishes arenas which one process maps on a device at a time.

    Raises:
        JudgeError: If the memory cannot be allocated; `DeviceFull`, if there is too little of it.
    """
    if device.type == "cpu":
        return _HostArena(tensors, total_bytes)
    try:
        return _DeviceArena(tensors, total_bytes, device, number)
    except cuda_ipc.DriverError:
        torch.cuda.empty_cache()  # torch's cached memory may be the memory that is missing
    try:
        return _DeviceArena(tensors, total_bytes, device, number)
    except cuda_ipc.DriverError as error:
        raise our_failure(
            f"this problem's tensors cannot be allocated on the device: {error}"
        ) from None


def encode(value: Any, place: Any) -> Any:
    """Encode an argument for a candidate: tensors become regions, the rest JSON.

    Args:
        value: Tensor, number, string, None, dtype, a list, tuple or dict of these, or the
            configuration of a transformers model.
        place: Function that is called with each tensor and returns its `ArenaRegion`.

    Raises:
        TypeError: If a value cannot be sent to another process.
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
    if _is_configuration(value):
        # The dictionary leaves out which attention a problem asked for.
        fields = json.loads(value.to_json_string(use_diff=False))
        return {"config": {**fields, "attn_implementation": value._attn_implementation}}
    raise TypeError(
        f"a problem's argument of type {type(value).__name__} cannot be given to a kernel"
    )


def _is_configuration(value: Any) -> bool:
    """Return True if a value is the configuration of a transformers model."""
    transformers = sys.modules.get("transformers")  # it made the value, so it is imported
    return transformers is not None and isinstance(value, transformers.PretrainedConfig)
