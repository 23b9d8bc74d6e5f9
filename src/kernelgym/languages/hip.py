"""HIP C++: extensions whose device code is compiled for AMD's GPUs. No judge here runs it yet."""

from __future__ import annotations

from kernelgym.languages.cuda import CUDA
from kernelgym.languages.definition import Language, Tool
from kernelgym.languages.examples import kernel_text, worked_examples

HIP = Language(
    name="hip",
    title="HIP C++",
    noun="custom HIP kernel",
    devices=("hip",),
    timed_on=("hip",),
    task="Write the computation as HIP C++ kernels, built by "
    '`torch.utils.cpp_extension.load_inline` after `os.environ["CXX"] = "hipcc"` '
    "(`cpp_sources=`, with `#include <hip/hip_runtime.h>`; or `cuda_sources=`, in which CUDA names "
    "are translated) and called from `forward`. Launch on the current stream. A wave has 64 lanes "
    "on AMD's Instinct GPUs (gfx90a, gfx942, gfx950), not 32: a shuffle reduction over a wave "
    "starts at an offset of 32, masks of lanes have 64 bits, and `warpSize` tells the number.",
    examples=worked_examples("hip"),
    sample=kernel_text("hip", "sample"),
    own_kernel=CUDA.own_kernel,
    tools=(Tool("hip clang"),),
    compiled_for=("hip",),
    told_by=r"\bhip/hip_\w+\.h|\bhipcc\b|\bc10/hip/|\bhip(Malloc|Memcpy|Launch|Get|Stream)\w*\(",
)
"""The language ``hip``."""
