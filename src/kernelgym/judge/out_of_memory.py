"""Distinguishes out-of-memory errors from other failures where they are raised; bounds memory.

The errors of torch, CUDA and its libraries have no common type, so their messages are searched. The
code in which an error is raised does so once, and hands on a `Failure` or a `DeviceFull`.
"""

from __future__ import annotations

import resource

from kernelgym.errors import DeviceFull, JudgeError
from kernelgym.judging_memory import device_bytes

# Words of torch and the driver, then of cuBLAS, then of cuDNN, which has two.
_SAID = ("out of memory", "outofmemory", "status_alloc_failed", "device_allocation_failed")


def is_out_of_memory(message: str) -> bool:
    """Return True if an error message says that memory ran out."""
    return any(words in message.lower() for words in _SAID)


def lacked_memory(error: BaseException) -> bool:
    """Return True if an exception means that memory ran out."""
    return isinstance(error, DeviceFull) or is_out_of_memory(f"{type(error).__name__}: {error}")


def our_failure(message: str) -> JudgeError:
    """Return the judge's exception for an error message: `DeviceFull` if memory ran out."""
    return (DeviceFull if is_out_of_memory(message) else JudgeError)(message)


def available_bytes() -> int:
    """Return the machine's available memory, at most what this process may have.

    In a container, the machine's may be far more.
    """
    with open("/proc/meminfo") as file:
        available_kib = next(int(line.split()[1]) for line in file if "MemAvailable" in line)
    return min(available_kib * 1024, device_bytes("cpu"))


def bound_own_memory() -> None:
    """Limit this process's address space to 90 % of the available memory.

    A problem too large for the machine raises then. Without the limit, the operating system would
    kill a process to free memory.
    """
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + int(available_bytes() * 0.9), hard))
