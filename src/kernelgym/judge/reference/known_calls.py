"""What the reference gives on values that everybody knows, kept for the next kernel.

Where a ruleset's seeds are public (KernelBench's own), every kernel of a problem is judged on the
same inputs. They and their outputs are kept on the device, up to a share of its memory; those of
very large problems are drawn and computed again, which on a device is as quick as reading them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import torch

from kernelgym.judge.reference.runner import Expected
from kernelgym.judge.tensors import bytes_of

__all__ = ["PublicCalls"]

_SHARE = 32  # of the device's memory
_HOST_BYTES = 256 << 20


class PublicCalls:
    """Inputs and outputs of judged calls, the most recently used ones.

    Args:
        device: Where they lie.
    """

    def __init__(self, device: torch.device) -> None:
        self._room = _HOST_BYTES
        if device.type == "cuda":
            self._room = int(torch.cuda.get_device_properties(device).total_memory) // _SHARE
        self._kept: OrderedDict[Hashable, tuple[list[Any], Expected, int]] = OrderedDict()
        self.bytes = 0
        """What they take."""

    def find(self, key: Hashable) -> tuple[list[Any], Expected] | None:
        """Return a call that was kept, or None. Nobody may change what it holds."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        inputs, expected, _ = self._kept[key]
        return inputs, expected

    def keep(self, key: Hashable, inputs: list[Any], expected: Expected) -> None:
        """Keep a call, if it is not large, in place of the ones used longest ago."""
        size = bytes_of([inputs, expected.output])
        if 5 * size > self._room or key in self._kept:  # one call of a verdict's five is no use
            return
        self._kept[key] = inputs, expected, size
        self.bytes += size
        while self.bytes > self._room:
            self.bytes -= self._kept.popitem(last=False)[1][2]
