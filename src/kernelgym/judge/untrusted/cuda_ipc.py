"""Device memory that two processes share through CUDA IPC, by the driver's own interface.

An IPC handle opens the whole allocation behind it, so what is shared is allocated here, apart from
PyTorch's allocator: a view into that would let a neighbour's data be read. Used on both sides of
the trust boundary and loaded by path in the untrusted one: standard library and torch only. CUDA
must be initialised, with the device's primary context current, before anything here is called.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

__all__ = [
    "DriverError",
    "allocate",
    "close_shared",
    "extent",
    "free",
    "open_shared",
    "share",
    "view",
]

_LAZY_PEER_ACCESS = 1


class DriverError(RuntimeError):
    """The CUDA driver refused a request; the message names the request and its bytes."""


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
    """Return the address of `size` bytes of their own on the current device.

    Raises:
        DriverError: If there is not that much left.
    """
    address = ctypes.c_uint64()
    _check(_driver().cuMemAlloc_v2(ctypes.byref(address), size), f"allocating {size} bytes")
    return address.value


def free(address: int) -> None:
    """Give an allocation back; waits until the device is done with it."""
    _check(_driver().cuMemFree_v2(address), "freeing device memory")


def share(address: int) -> str:
    """Return what another process needs to open an allocation, as hexadecimal text."""
    handle = _Handle()
    _check(_driver().cuIpcGetMemHandle(ctypes.byref(handle), address), "sharing device memory")
    return bytes(handle).hex()


def open_shared(handle: str) -> int:
    """Map another process's allocation; returns its address here."""
    address = ctypes.c_uint64()
    given = _Handle.from_buffer_copy(bytes.fromhex(handle))
    code = _driver().cuIpcOpenMemHandle_v2(ctypes.byref(address), given, _LAZY_PEER_ACCESS)
    _check(code, "opening shared device memory")
    return address.value


def close_shared(address: int) -> None:
    """Unmap what `open_shared` mapped."""
    _check(_driver().cuIpcCloseMemHandle(address), "closing shared device memory")


def extent(address: int) -> tuple[int, int]:
    """Return the start and the size of the allocation that holds an address."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = _driver().cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address)
    _check(code, "finding an allocation")
    return base.value, size.value


class _Span:
    """What torch reads to lay a tensor over memory that it did not allocate."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }


def view(address: int, size: int, device: torch.device | str) -> torch.Tensor:
    """Return a tensor of `size` bytes (uint8) over device memory, with a storage of its own."""
    return torch.as_tensor(_Span(address, size), device=device)
