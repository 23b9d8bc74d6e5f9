"""Describes the machine on which a measurement was made, for result files.

Names hardware and versions, nothing that tells one machine of a kind from another.
"""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def machine(device: str, *packages: str) -> dict[str, Any]:
    """Return facts about this machine: processor, cores, load, system and versions.

    Args:
        device: Device of the measurement; for a CUDA device, its model and driver are returned,
            too.
        packages: Distributions whose versions matter, beside kernelgym's own.
    """
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    kind, _, number = device.partition(":")
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        **({"gpu": _gpu(number or "0")} if kind == "cuda" else {}),
        "system": platform.system(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
        **{package: installed_version(package) for package in ("kernelgym", *packages)},
    }


def _gpu(number: str) -> str:
    query = ("nvidia-smi", f"--id={number}", "--query-gpu=name,driver_version")
    try:
        found = subprocess.run(
            [*query, "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return found.stdout.strip() if found.returncode == 0 else "unknown"


@functools.cache
def installed_version(package: str, missing: str = "not installed") -> str:
    """Return the version of a distribution, or `missing` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return missing
