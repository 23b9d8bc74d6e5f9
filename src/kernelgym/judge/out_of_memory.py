"""Want of device memory, told from other failures by what is said of it."""

from __future__ import annotations

import resource

from kernelgym.errors import DeviceFull, JudgeError

__all__ = ["bound_own_memory", "is_out_of_memory", "lacked_memory", "our_failure"]

# By torch and the driver; by cuBLAS; by cuDNN, which names it in two ways.
_SAID = ("out of memory", "outofmemory", "status_alloc_failed", "device_allocation_failed")


def is_out_of_memory(message: str) -> bool:
    """Say whether something failed for want of memory, by its message."""
    return any(words in message.lower() for words in _SAID)


def lacked_memory(error: BaseException) -> bool:
    """Say whether something failed for want of memory, by what it raised."""
    return isinstance(error, DeviceFull) or is_out_of_memory(f"{type(error).__name__}: {error}")


def our_failure(message: str) -> JudgeError:
    """Return what the judge raises for a failure of its own: `DeviceFull` for want of memory."""
    return (DeviceFull if is_out_of_memory(message) else JudgeError)(message)


def bound_own_memory() -> None:
    """Let a problem too large for this machine raise, instead of inviting the OOM killer."""
    with open("/proc/meminfo") as file:
        available_kib = next(int(line.split()[1]) for line in file if "MemAvailable" in line)
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + int(available_kib * 1024 * 0.9), hard))
