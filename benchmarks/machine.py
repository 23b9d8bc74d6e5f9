"""What a benchmark ran on; every result file carries it."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernelgym.devices import cuda_devices


def machine(*packages: str) -> dict[str, Any]:
    """Return processor, cores, load, system and versions of Python and `packages`."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
        **{package: _version(package) for package in ("kernelgym", *packages)},
    }


def gpu(device: str) -> dict[str, Any]:
    """Return the name and memory of a CUDA device; nothing of the CPU."""
    if device == "cpu":
        return {}
    found = cuda_devices()[int(device.partition(":")[2] or 0)]
    return {"gpu": found.name, "gpu_memory_bytes": found.memory_bytes}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
