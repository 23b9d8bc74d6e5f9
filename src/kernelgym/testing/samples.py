"""The sample problem and kernels behind `kernelgym.testing`: ``y = 2 * relu(x) + 1``, 7 x 33.

Small and odd-sized on purpose: a kernel without bounds checks goes wrong on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym.languages import LANGUAGES
from kernelgym.types import Kernel, Problem

__all__ = ["SAMPLE_BROKEN", "SAMPLE_KERNELS", "SAMPLE_PROBLEM"]

SAMPLE_PROBLEM = Problem(
    id="Sample/L1/1",
    suite="Sample",
    level=1,
    name="1_relu_scale_shift",
    family="elementwise",
    source='''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """y = 2 * relu(x) + 1"""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0


def get_inputs():
    return [torch.randn(7, 33)]


def get_init_inputs():
    return []
''',
)
"""A small elementwise problem."""

SAMPLE_KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {name: Kernel(entry.sample, name) for name, entry in LANGUAGES.items()}
)
"""A correct kernel for `SAMPLE_PROBLEM` in every language."""

SAMPLE_BROKEN: Mapping[str, Kernel] = MappingProxyType(
    {
        name: Kernel(entry.sample.replace("+ 1.0", "+ 3.0"), name)
        for name, entry in LANGUAGES.items()
    }
)
"""A kernel for `SAMPLE_PROBLEM` in every language that runs and is wrong by a constant."""
