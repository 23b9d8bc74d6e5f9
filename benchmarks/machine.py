"""What a benchmark ran on, which every result file carries, and how busy its host was."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True)
class HostUse:
    """Times of the host's processors and of this process up to a moment, in seconds."""

    moment: float
    user: float
    system: float
    own: float
    """Processor time of this process, whose one interpreter serves all workers."""

    @classmethod
    def now(cls) -> HostUse:
        """Return the times up to now."""
        ticks = [int(each) for each in Path("/proc/stat").read_text().split()[1:8]]
        user, nice, system, _, _, irq, soft_irq = (
            each / os.sysconf("SC_CLK_TCK") for each in ticks
        )
        return cls(time.perf_counter(), user + nice, system + irq + soft_irq, time.process_time())

    def until_now(self) -> dict[str, float]:
        """Return the mean number of processors at work since then, by what they did."""
        now = self.now()
        names, wall_s = ("user", "system", "own"), now.moment - self.moment
        return {f"{n}_cores": (getattr(now, n) - getattr(self, n)) / wall_s for n in names}
