"""Calls of the reference under public seeds, kept for the next kernel.

Where a ruleset's seeds are public (KernelBench's own), every kernel of a problem is judged on the
same inputs. The worker keeps these inputs and the reference's outputs on the device, up to 1/32 of
its memory (256 MiB on the CPU). Those of very large problems are drawn and computed again, which
takes a device no longer than reading them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import torch

from kernelgym.judge.reference.runner import ExpectedOutput
from kernelgym.judge.tensors import bytes_of

_SHARE = 32  # of the device's memory
_HOST_BYTES = 256 << 20


class PublicCalls:
    """Inputs and reference outputs of judged calls, the most recently used ones.

    Args:
        device: The device on which the tensors lie.
    """

    def __init__(self, device: torch.device) -> None:
        self._room = _HOST_BYTES
        if device.type == "cuda":
            self._room = int(torch.cuda.get_device_properties(device).total_memory) // _SHARE
        self._kept: OrderedDict[Hashable, tuple[list[Any], ExpectedOutput, int]] = OrderedDict()
        self.bytes = 0
        """Size of all tensors kept."""

    def find(self, key: Hashable) -> tuple[list[Any], ExpectedOutput] | None:
        """Return a kept call, or None; callers must not change it."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        inputs, expected, _ = self._kept[key]
        return inputs, expected

    def keep(self, key: Hashable, inputs: list[Any], expected: ExpectedOutput) -> None:
        """Keep a call unless it is large; drop least recently used ones."""
        size = bytes_of([inputs, expected.output])
        # A verdict makes five calls: unless all five fit, each would push out the one needed next.
        if 5 * size > self._room or key in self._kept:
            return
        self._kept[key] = inputs, expected, size
        self.bytes += size
        while self.bytes > self._room:
            self.bytes -= self._kept.popitem(last=False)[1][2]
