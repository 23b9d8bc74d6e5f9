"""What a benchmark ran on; every result file carries it."""

from __future__ import annotations

from typing import Any

from kernelgym.devices import cuda_devices
from kernelgym.machine import machine as _machine


def machine(*packages: str) -> dict[str, Any]:
    """Return processor, cores, load, system and versions of Python and `packages`."""
    return _machine("cpu", *packages)


def gpu(device: str) -> dict[str, Any]:
    """Return the name and memory of a CUDA device; nothing of the CPU."""
    if device == "cpu":
        return {}
    found = cuda_devices()[int(device.partition(":")[2] or 0)]
    return {"gpu": found.name, "gpu_memory_bytes": found.memory_bytes}
