"""Reads the outputs of timed calls from the memory in which a candidate left them.

Contract: the candidate names the allocation (by a CUDA IPC handle), the offset and the strides.
Before any byte is read, all of this is checked against the driver's record of the allocation.

Not covered: whether the values are right (`kernelgym.judge.session.session`).
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import torch

from kernelgym.errors import DeviceFull
from kernelgym.judge.out_of_memory import is_out_of_memory
from kernelgym.judge.untrusted import cuda_ipc

# Types that torch can view over bytes and copy; its quantised and sub-byte types are none of them.
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2),
    )
}
_MAX_NUMBER = 1 << 48
_MAX_DIMENSIONS = 64  # torch can copy no tensor with more


class Unreadable(Exception):
    """Raised if an output is not where the candidate says, or cannot be shared."""


class DeviceOutputs:
    """Opens a candidate's allocations, each once, and copies tensors out of them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.opened: dict[str, tuple[int, int]] = {}
        """Address in this process and size in bytes of each open allocation, by handle."""
        self.refused: Sequence[Container[str]] = ()
        """Handles of other candidates' memory, which this candidate may not name."""

    def copy(
        self, description: Any, expected: Sequence[torch.Tensor], arena: tuple[int, int]
    ) -> list[torch.Tensor]:
        """Copy an output's tensors out of the candidate's device memory, in order.

        Args:
            description: The candidate's description of the output.
            expected: Tensors of the types and shapes that the output must have.
            arena: Address in this process and size in bytes of the memory that holds the inputs,
                for outputs that lie there because the kernel returned one of its inputs.

        Raises:
            DeviceFull: If the device has no room for the copies.
            Unreadable: If a tensor is not where the description says, or not of the expected type
                and shape.
        """
        try:
            places = [_place(said) for said in _claimed_tensors(description)]
        except RecursionError:
            raise Unreadable("an output has no readable place") from None
        if len(places) != len(expected):
            raise Unreadable(f"the output has {len(places)} tensors instead of {len(expected)}")
        for place, tensor in zip(places, expected, strict=True):
            if (place.dtype, place.shape) != (tensor.dtype, list(tensor.shape)):
                raise Unreadable(f"an output is now a {place.dtype} of shape {place.shape!s:.80}")
        try:
            return [self._copy_one(place, arena) for place in places]
        except torch.OutOfMemoryError as error:
            text = " ".join(str(error).split())
            raise DeviceFull(f"an output cannot be copied: {text[:200]}") from None

    def _copy_one(self, place: _Place, arena: tuple[int, int]) -> torch.Tensor:
        dtype, shape, strides, handle, offset = place
        if 0 in shape:
            return torch.empty(shape, dtype=dtype, device=self._device)
        address, size = self._open(handle) if handle else arena
        last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        span = (last + 1) * dtype.itemsize
        if offset % dtype.itemsize or offset + span > size or math.prod(shape) > last + 1:
            raise Unreadable("an output reaches past the memory it lies in")
        flat = cuda_ipc.view(address + offset, span, self._device).view(dtype)
        view = flat.as_strided(shape, strides)
        if dtype == torch.bool:
            return view.view(torch.uint8).clone().view(torch.bool)
        return view.clone()

    def _open(self, handle: str) -> tuple[int, int]:
        if any(handle in handles for handles in self.refused):
            raise Unreadable("an output lies in another process's memory")
        if handle not in self.opened:
            try:
                address = cuda_ipc.open_shared(handle)
                start, size = cuda_ipc.extent(address)
            except (cuda_ipc.DriverError, ValueError, TypeError) as error:
                message = f"an output's memory cannot be opened: {error}"
                full = isinstance(error, cuda_ipc.DriverError) and is_out_of_memory(message)
                raise (DeviceFull if full else Unreadable)(message) from None
            self.opened[handle] = (address, size - (address - start))
        return self.opened[handle]

    def forget(self) -> None:
        """Close all allocations that were opened."""
        opened = list(self.opened.values())
        self.opened.clear()
        for address, _ in opened:
            cuda_ipc.close_shared(address)


class _Place(NamedTuple):
    dtype: torch.dtype
    shape: list[int]
    strides: list[int]
    memory: str
    """Handle of the allocation; '' for the memory of inputs, and for a tensor without elements."""
    offset: int


def _place(said: Any) -> _Place:
    """Return the place in memory that a candidate's description names, without reading it."""
    try:
        name, shape, place = said
        offset, strides = place["offset"], place["strides"]
        memory = "" if 0 in shape else place["memory"]  # an empty tensor needs no memory
        found = _Place(_DTYPES[name], shape, strides, memory, offset)
    except (TypeError, ValueError, KeyError):
        raise Unreadable("an output has no readable place") from None
    if not (isinstance(shape, list) and isinstance(strides, list) and isinstance(memory, str)):
        raise Unreadable("an output has no readable place")
    if len(shape) != len(strides) or len(shape) > _MAX_DIMENSIONS:
        raise Unreadable("an output has no readable place")
    if not all(type(n) is int and 0 <= n < _MAX_NUMBER for n in (*shape, *strides, offset)):
        raise Unreadable("an output has no readable place")
    if math.prod(max(n, 1) for n in shape) >= _MAX_NUMBER:
        raise Unreadable("an output has no readable place")
    return found


def _claimed_tensors(description: Any) -> Sequence[list[Any]]:
    """Return a candidate's descriptions of output tensors, in order; [] if malformed."""
    if not isinstance(description, dict) or len(description) != 1:
        return []
    ((kind, body),) = description.items()
    if kind == "tensor":
        return [body]
    if kind == "sequence" and isinstance(body, list):
        return [said for item in body for said in _claimed_tensors(item)]
    if kind == "mapping" and isinstance(body, list):
        pairs = [item for item in body if isinstance(item, list) and len(item) == 2]
        return [said for _, item in pairs for said in _claimed_tensors(item)]
    return []
