"""Want of device memory, told from other failures by what is said of it."""

from __future__ import annotations

from kernelgym.errors import DeviceFull, JudgeError

__all__ = ["fault", "is_out_of_memory"]

_SAID = ("out of memory", "status_alloc_failed")  # the latter by cuBLAS and cuDNN


def is_out_of_memory(message: str) -> bool:
    """Say whether something failed for want of memory, by its message."""
    return any(words in message.lower() for words in _SAID)


def fault(message: str) -> JudgeError:
    """Return what the judge raises for a failure of its own: `DeviceFull` for want of memory."""
    return (DeviceFull if is_out_of_memory(message) else JudgeError)(message)
