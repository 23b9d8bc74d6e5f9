"""HIP C++: described like CUDA C++, with the same example sources. No judge here runs it yet."""

from __future__ import annotations

import dataclasses

from kernelgym.languages.cuda import CUDA

# Examples and sample are CUDA's: PyTorch's ROCm build translates the CUDA names of a source.
HIP = dataclasses.replace(
    CUDA,
    name="hip",
    title="HIP C++",
    noun="custom HIP kernel",
    devices=("hip",),
    timed_on=("hip",),
    task="Write the computation as HIP C++ kernels, built by "
    "`torch.utils.cpp_extension.load_inline` (`cuda_sources=`, with a declaration in "
    "`cpp_sources=`; CUDA names are translated) and called from `forward`. Launch on the "
    "current stream. AMD's data-center GPUs run waves of 64 lanes: masks of lanes have 64 bits, "
    "and a reduction over a wave takes six steps.",
    tools=(),
    compiled_for=(),
)
"""The language ``hip``."""
