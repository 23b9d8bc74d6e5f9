"""The trusted side's memory as a candidate sees it, and where the candidate's outputs lie.

The trusted side's memory is a sealed memory file, which is mapped here, or allocations on the
device, which are opened by their handles. Regions of that memory become tensors. Outputs on a
device are shared in the other direction: the candidate sends a handle of the allocation that holds
each output.

Loaded by path in the untrusted process: standard library and torch only, and transformers where a
problem's model is constructed from a transformers configuration.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

# Bound before any candidate code runs, so that ordinary monkey-patching does not reach them.
_frombuffer = torch.frombuffer
_synchronize = torch.cuda.synchronize
_copy, _fill, _as_strided = torch.Tensor.copy_, torch.Tensor.fill_, torch.Tensor.as_strided
_empty_like, _equal, _address = torch.empty_like, torch.equal, torch.Tensor.data_ptr
_DELAY_CYCLES = 6_000_000  # about 3 ms: longer than a window of calls that are already queued
_HELD_BYTES = 256 << 20
_FEW_HELD = 16
_KEPT_BYTES = 2 << 30
_LARGE_BYTES = 1 << 30  # of outputs: from here on one set of NaN blocks, not two
_INPUTS = 0  # the number of the allocation that holds the inputs


class Buffers:
    """Maps the trusted side's memory and locates output tensors.

    Args:
        device_memory: The module `cuda_ipc.py`.
        describe: The function `describe` of `outputs.py`.
        device: The device that the candidate runs on.
    """

    def __init__(
        self, device_memory: ModuleType, describe: Callable[..., Any], device: torch.device
    ) -> None:
        self._device_memory, self._describe, self._device = device_memory, describe, device
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._addresses: dict[int, int] = {}  # of open allocations, by number
        self._freed = 0
        self._blocks: list[tuple[int, int, str]] = []  # allocations that held outputs so far

    def map(self, fd: int, size: int) -> None:
        """Map the trusted side's buffers."""
        self._memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(fd)

    def open(self, handle: str, number: int) -> None:
        """Open an allocation; it replaces the one that had its number."""
        address = self._device_memory.open_shared(handle)
        old = self._addresses.get(number)
        self._addresses[number] = address
        if old is not None:  # closed last, so that the two addresses differ
            self._close([old])

    def release(self, numbers: list[int]) -> None:
        """Close allocations on the device; free torch's cached memory if that pays.

        Freeing takes the driver long. It pays if torch caches more than 2 GiB, or if no shared
        allocation is left open.
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
        """Forget the shared allocations that held outputs; share them anew."""
        self._blocks = []

    def forget_freed_blocks(self) -> None:
        """Share allocations anew if torch has freed any.

        Another allocation may lie at the freed address by now.
        """
        # The nested form: flattening all counters takes longer than a short kernel.
        freed = torch.cuda.memory_stats_as_nested_dict(self._device).get("num_device_free", -1)
        if freed != self._freed:
            self._freed, self._blocks = freed, []

    def locate(self, output: Any) -> Any:
        """Return an output's description, with each tensor's place on the device."""

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
                # A kernel may return one of its inputs. The trusted side cannot open a handle to
                # memory that it shares itself, so it gets an empty one.
                own = start == self._addresses.get(_INPUTS)
                handle = "" if own else self._device_memory.share(start)
                self._blocks.append((start, size, handle))
            strides = list(tensor.stride())
            return {"memory": handle, "offset": address - start, "strides": strides}

        return self._describe(output, place_of)

    def decode(self, value: Any) -> Any:
        """Return the argument that the trusted side encoded, with tensors over buffers."""
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
            case "config":
                from transformers import CONFIG_MAPPING

                return CONFIG_MAPPING[body["model_type"]].from_dict(body)
        raise ValueError(f"unknown kind of value {kind!r}")

    def view(self, region: dict[str, Any]) -> torch.Tensor:
        """Return a tensor over a region."""
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
        return _view_of(self._memory, region)


def views_of_file(fd: int, size: int, regions: list[dict[str, Any]]) -> list[torch.Tensor]:
    """Return tensors over regions of a memory file; the descriptor is closed."""
    memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(fd)
    return [_view_of(memory, region) for region in regions]


def _view_of(memory: mmap.mmap, region: dict[str, Any]) -> torch.Tensor:
    # The storage ends where this tensor ends, so that the bounds check notices a read past it.
    dtype = getattr(torch, region["dtype"])
    flat = _frombuffer(memory, dtype=dtype, count=region["count"], offset=region["offset"])
    return flat.as_strided(region["shape"], region["strides"])


class HeldBack:
    """Values of a call's inputs that are written late, on the current stream.

    They stand for the output of a model's previous layer. A kernel on a stream that does not wait
    for the current stream reads what stands in their place until then: one half of the values,
    twice, so that nothing tells a kernel that looks at them to wait; or zeros, if both halves are
    equal.

    Args:
        arguments: The call's arguments on the device.
        below: Draws a secret number below the given one.
        clock: The device's clock, a `Clock` of `unseen.py`; None on the CPU.
        most_bytes: Bytes of each tensor that are held back, at most.
        few: Whether it is mostly few elements, whose place is drawn in secret: a kernel that has
            computed a call's output ahead may look at a sample of its inputs, and compute it anew
            only if that has changed.
    """

    def __init__(
        self,
        arguments: Any,
        below: Callable[[int], int],
        clock: Any = None,
        most_bytes: int = _HELD_BYTES,
        few: bool = False,
    ) -> None:
        self._clock = clock
        self._held: list[tuple[torch.Tensor, torch.Tensor]] = []
        for tensor in _tensors_in(arguments):
            count = tensor.untyped_storage().nbytes() // tensor.element_size()
            held = min(count, most_bytes // tensor.element_size())
            if few and below(8):
                held = min(held, _FEW_HELD)
            flat = _as_strided(tensor, (held,), (1,), below(count - held + 1))
            self._held.append((flat, _empty_like(flat)))

    def hold(self) -> None:
        """Take the values away, and put others in their place."""
        for flat, values in self._held:
            _copy(values, flat)
            half = len(values) // 2
            later = values[len(values) - half :]
            if half and not _equal(later, values[:half]):
                _copy(flat[:half], later)
            else:
                _fill(flat, 0)
        if self._clock is not None:
            self._clock.finish()

    def write(self) -> None:
        """Write the values; on a GPU the current stream waits for about 3 ms before it does so."""
        if self._clock is not None:
            self._clock.delay(_DELAY_CYCLES)
        for place, values in self._held:
            _copy(place, values)

    def copies(self) -> list[tuple[int, int, int]]:
        """Return the address of each place, that of its values, and their bytes."""
        return [(_address(flat), _address(held), held.nbytes) for flat, held in self._held]


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors_in(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def fill_fresh(on: bool, device: torch.device, calls: list[Any]) -> None:
    """Fill memory that the next calls will allocate with values wrong in almost every output.

    Args:
        on: Whether to fill it. On the CPU this stays so until the next call of this function; on a
            GPU it holds for the outputs of one call.
        device: Device of the calls.
        calls: Arguments of each call, and the places of its outputs or None. The places of the
            first call give the sizes.
    """
    if device.type == "cpu":
        fill_fresh_memory(on)
    elif on:
        fill_fresh_device_memory([place for _, places in calls[:1] for place in places or ()])


def fill_fresh_memory(on: bool) -> None:
    """Switch on or off that malloc and free fill memory.

    Without it, an output that a kernel leaves partly unwritten would often hold zeros there. Bytes
    of 0x3F (floats near 0.75) and 0xC0 (floats near -6) are wrong in almost every output.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if mallopt is not None:
        mallopt(-6, 0xC0 if on else 0)


def fill_fresh_device_memory(outputs: list[Any]) -> None:
    """Free NaN blocks of the outputs' sizes, for torch's allocator to reuse."""
    size = sum(output.nbytes for output in outputs)
    for _ in range(2 if size < _LARGE_BYTES else 1):
        blocks = [torch.empty_like(output) for output in outputs]
        for block in blocks:
            if block.is_floating_point() or block.is_complex():
                block.fill_(float("nan"))
            elif block.numel():
                block.view(torch.uint8).fill_(0xA5)
