"""CUDA C++: extensions and modules whose device code nvcc or NVRTC compiles."""

from __future__ import annotations

from kernelgym.languages.definition import Language, OwnKernel, Tool
from kernelgym.languages.examples import kernel_text, worked_examples

CUDA = Language(
    name="cuda",
    title="CUDA C++",
    noun="custom CUDA kernel",
    devices=("cuda",),
    timed_on=("cuda",),
    task="Write the computation as CUDA C++ kernels, built by "
    "`torch.utils.cpp_extension.load_inline` (`cuda_sources=`, with a declaration in "
    "`cpp_sources=`) and called from `forward`. Launch on the current stream.",
    examples=worked_examples("cuda"),
    sample=kernel_text("cuda", "sample"),
    own_kernel=OwnKernel(
        builders=("load_inline", "load", "RawKernel", "RawModule", "_compile_kernel"),
        device_code=r"__global__|__device__|\bGPU_LAMBDA\b"
        r"|\bcutlass\b|\bthrust::|\b(?:hip)?cub::|\bck::",
        device_marker="__global__",
    ),
    compiled_for=("cuda",),
    # RawKernel and its like are compiled by NVRTC, which comes with PyTorch.
    tools=(Tool("nvcc", needed_by="load_inline"),),
)
"""The language ``cuda``."""
