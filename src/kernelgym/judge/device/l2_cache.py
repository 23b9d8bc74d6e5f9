"""Flushes a CUDA device's L2 cache, so that timed calls start cold."""

from __future__ import annotations

import torch


class L2Cache:
    """The L2 cache of one CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flushing = torch.empty(0, device=device)

    def flush(self) -> None:
        """Overwrite four times as much memory as the cache holds."""
        if not self._flushing.numel():
            size = 4 * torch.cuda.get_device_properties(self._device).L2_cache_size
            self._flushing = torch.empty(size, dtype=torch.uint8, device=self._device)
        self._flushing.fill_(1)
