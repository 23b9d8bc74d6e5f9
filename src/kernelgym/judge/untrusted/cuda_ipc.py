"""Device memory that two processes share through CUDA IPC, by the CUDA driver API.

An IPC handle opens the whole allocation behind it. Shared memory is therefore allocated here and
not by PyTorch's allocator: a handle to a block of that allocator would expose other tensors' data.

Callers must initialise CUDA, with the device's primary context current, before any call here. Both
sides of the trust boundary use this file; the untrusted side loads it by path: standard library
and torch only.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

_LAZY_PEER_ACCESS = 1


class DriverError(RuntimeError):
    """The CUDA driver refused a request; the message names the request."""


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


@functools.cache
def _driver() -> Any:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
    driver.cuMemFree_v2.argtypes = [ctypes.c_uint64]
    driver.cuIpcGetMemHandle.argtypes = [ctypes.POINTER(_Handle), ctypes.c_uint64]
    driver.cuIpcOpenMemHandle_v2.argtypes = [
        ctypes.POINTER(ctypes.c_uint64),
        _Handle,
        ctypes.c_uint,
    ]
    driver.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
    driver.cuMemGetAddressRange_v2.argtypes = [
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_size_t),
        ctypes.c_uint64,
    ]
    return driver


def _check(code: int, what: str) -> None:
    if code:
        name = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(name))
        text = (name.value or b"unknown").decode()
        raise DriverError(f"{what}: CUDA error {code} ({text})")


def allocate(size: int) -> int:
    """Return the address of a new allocation on the current device.

    Raises:
        DriverError: If less than `size` bytes of device memory are free.
    """
    address = ctypes.c_uint64()
    _check(_driver().cuMemAlloc_v2(ctypes.byref(address), size), f"allocating {size} bytes")
    return address.value


def free(address: int) -> None:
    """Free an allocation; waits until the device has finished using it."""
    _check(_driver().cuMemFree_v2(address), "freeing device memory")


def share(address: int) -> str:
    """Return the IPC handle of an allocation as hexadecimal text."""
    handle = _Handle()
    _check(_driver().cuIpcGetMemHandle(ctypes.byref(handle), address), "sharing device memory")
    return bytes(handle).hex()


def open_shared(handle: str) -> int:
    """Map another process's allocation; return its address in this process."""
    address = ctypes.c_uint64()
    given = _Handle.from_buffer_copy(bytes.fromhex(handle))
    code = _driver().cuIpcOpenMemHandle_v2(ctypes.byref(address), given, _LAZY_PEER_ACCESS)
    _check(code, "opening shared device memory")
    return address.value


def close_shared(address: int) -> None:
    """Unmap an allocation that `open_shared` mapped."""
    _check(_driver().cuIpcCloseMemHandle(address), "closing shared device memory")


def extent(address: int) -> tuple[int, int]:
    """Return start and size of the allocation that holds an address."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = _driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address)
    _check(code, "finding an allocation")
    return base.value, size.value


class _Span:
    """Describes memory to torch through ``__cuda_array_interface__``.

    torch lays tensors over such memory without having allocated it.
    """

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }


def view(address: int, size: int, device: torch.device | str) -> torch.Tensor:
    """Return a uint8 tensor over device memory, with its own storage."""
    return torch.as_tensor(_Span(address, size), device=device)
