"""The trusted side's memory as a candidate's process sees it, and where its outputs lie beside it.

It is a sealed memory file, mapped, or allocations on the device, opened by their handles. Regions
of it become tensors. Outputs on a device are shared the other way: by the allocation they lie in.
Loaded by path in the untrusted process: standard library and torch only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

__all__ = ["Buffers", "fill_fresh_device_memory", "fill_fresh_memory"]

# Bound before any candidate code runs, so that ordinary monkey-patching does not reach them.
_frombuffer = torch.frombuffer
_synchronize = torch.cuda.synchronize
_KEPT_BYTES = 2 << 30
_LARGE_BYTES = 1 << 30  # of outputs: room for one of them beside the kernel's own is enough
_INPUTS = 0  # the number of the allocation that inputs lie in


class Buffers:
    """Maps the trusted side's memory, and says where tensors lie.

    Args:
        device_memory: The module of that name.
        describe: Describes an output.
        device: Where the candidate runs.
    """

    def __init__(
        self, device_memory: ModuleType, describe: Callable[..., Any], device: torch.device
    ) -> None:
        self._device_memory, self._describe, self._device = device_memory, describe, device
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._addresses: dict[int, int] = {}  # of allocations that are open, by number
        self._freed = 0
        self._blocks: list[tuple[int, int, str]] = []  # allocations that held outputs so far

    def map(self, fd: int, size: int) -> None:
        """Map the trusted side's buffers."""
        self._memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(fd)

    def open(self, handle: str, number: int) -> None:
        """Open an allocation of the trusted side's, in place of what had its number."""
        address = self._device_memory.open_shared(handle)
        old = self._addresses.get(number)
        self._addresses[number] = address
        if old is not None:  # closed last, or the new one might come to lie where it lay
            self._close([old])

    def release(self, numbers: list[int]) -> None:
        """Let go of allocations on the device, and of what torch keeps for later.

        Of the latter only if it is much, or none is left: the driver takes long.
        """
        opened = [self._addresses.pop(number) for number in numbers if number in self._addresses]
        if opened:
            self._close(opened)
            kept = torch.cuda.memory_reserved(self._device)
            kept -= torch.cuda.memory_allocated(self._device)
            if not self._addresses or kept > _KEPT_BYTES:
                torch.cuda.empty_cache()

    def _close(self, addresses: list[int]) -> None:
        self._blocks = []
        _synchronize(self._device)
        for address in addresses:
            self._device_memory.close_shared(address)

    def forget_blocks(self) -> None:
        """Share all allocations anew."""
        self._blocks = []

    def forget_freed_blocks(self) -> None:
        """Share allocations anew if any was given back: another may lie at its address now."""
        # Nested as they come: to flatten all counters takes longer than a short kernel does.
        freed = torch.cuda.memory_stats_as_nested_dict(self._device).get("num_device_free", -1)
        if freed != self._freed:
            self._freed, self._blocks = freed, []

    def locate(self, output: Any) -> Any:
        """Describe an output, its tensors by where they lie on the device."""

        def place_of(tensor: torch.Tensor) -> dict[str, Any] | None:
            if tensor.layout != torch.strided or tensor.device != self._device:
                return None
            if tensor.numel() == 0:
                return {"offset": 0, "strides": list(tensor.stride())}
            address = tensor.data_ptr()
            start, size, handle = next(
                (block for block in self._blocks if block[0] <= address < block[0] + block[1]),
                (0, 0, ""),
            )
            if not size:
                start, size = self._device_memory.extent(address)
                # The trusted side cannot open what it has shared itself: a kernel may return one
                # of its inputs.
                own = start == self._addresses.get(_INPUTS)
                handle = "" if own else self._device_memory.share(start)
                self._blocks.append((start, size, handle))
            strides = list(tensor.stride())
            return {"memory": handle, "offset": address - start, "strides": strides}

        return self._describe(output, place_of)

    def decode(self, value: Any) -> Any:
        """Return an argument as the trusted side's `encode` was given it, tensors over buffers."""
        if not isinstance(value, dict):
            return value
        ((kind, body),) = value.items()
        match kind:
            case "tensor":
                return self.view(body)
            case "list":
                return [self.decode(item) for item in body]
            case "tuple":
                return tuple(self.decode(item) for item in body)
            case "dict":
                return {key: self.decode(item) for key, item in body}
            case "dtype":
                return getattr(torch, body)
        raise ValueError(f"unknown kind of value {kind!r}")

    def view(self, region: dict[str, Any]) -> torch.Tensor:
        """Lay a tensor over a region."""
        dtype = getattr(torch, region["dtype"])
        if region["count"] == 0:
            device = self._device if self._addresses else "cpu"
            return torch.empty_strided(
                region["shape"], region["strides"], dtype=dtype, device=device
            )
        if self._addresses:
            address = self._addresses[region["arena"]] + region["offset"]
            size = region["count"] * dtype.itemsize
            flat = self._device_memory.view(address, size, self._device)
            return flat.view(dtype).as_strided(region["shape"], region["strides"])
        # A storage of exactly this tensor, so that reading past it can be noticed.
        flat = _frombuffer(
            self._memory, dtype=dtype, count=region["count"], offset=region["offset"]
        )
        return flat.as_strided(region["shape"], region["strides"])


def fill_fresh_memory(on: bool) -> None:
    """Have the C library fill memory it hands out and takes back, or stop doing so.

    A kernel that leaves part of its output unwritten would else often find zeros there. Bytes of
    0x3F (floats near 0.75) and 0xC0 (floats near -6) are wrong in almost every output.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if mallopt is not None:
        mallopt(-6, 0xC0 if on else 0)


def fill_fresh_device_memory(outputs: list[Any]) -> None:
    """Leave blocks of NaN, of the outputs' sizes, where the device's allocator takes from next."""
    size = sum(output.nbytes for output in outputs)
    for _ in range(2 if size < _LARGE_BYTES else 1):
        blocks = [torch.empty_like(output) for output in outputs]
        for block in blocks:
            if block.is_floating_point() or block.is_complex():
                block.fill_(float("nan"))
            elif block.numel():
                block.view(torch.uint8).fill_(0xA5)
