"""The sample problem and kernels behind `kernelgym.testing`: ``y = 2 * relu(x) + 1``, 7 x 33.

Its odd sizes make a kernel without bounds checks wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym.languages import LANGUAGES
from kernelgym.languages.examples import kernel_text
from kernelgym.types import Kernel, Problem

SAMPLE_PROBLEM = Problem(
    id="Sample/L1/1",
    suite="Sample",
    level=1,
    name="1_relu_scale_shift",
    family="elementwise",
    source=kernel_text("reference", "sample"),
)
"""Problem with one small element-wise computation."""

SAMPLE_KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {name: Kernel(entry.sample, name) for name, entry in LANGUAGES.items()}
)
"""Correct kernels for `SAMPLE_PROBLEM`, by language."""

SAMPLE_BROKEN: Mapping[str, Kernel] = MappingProxyType(
    {
        name: Kernel(entry.sample.replace("+ 1.0", "+ 3.0"), name)
        for name, entry in LANGUAGES.items()
    }
)
"""Kernels for `SAMPLE_PROBLEM` that run and give results wrong by a constant, by language."""
