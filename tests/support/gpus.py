"""Number of GPUs of this machine, for tests that need several."""

from __future__ import annotations

from kernelgym.devices import cuda_devices
from kernelgym.errors import UsageError


def gpu_count() -> int:
    """Return the number of visible GPUs; 0 if the driver is missing or fails."""
    try:
        return len(cuda_devices())
    except UsageError:
        return 0
