"""C++ for the CPU: extensions that `torch.utils.cpp_extension.load_inline` builds."""

from __future__ import annotations

from kernelgym.languages.definition import Language, OwnKernel, Tool
from kernelgym.languages.examples import kernel_text, worked_examples

CPP = Language(
    name="cpp",
    title="C++",
    noun="C++ extension function",
    devices=("cpu",),
    timed_on=("cpu",),
    task="Write the computation in C++, built by `torch.utils.cpp_extension.load_inline` "
    "(`cpp_sources=`) and called from `forward`. OpenMP is available.",
    examples=worked_examples("cpp"),
    sample=kernel_text("cpp", "sample"),
    own_kernel=OwnKernel(builders=("load_inline", "load")),
    tools=(Tool("c++"),),
)
"""The language ``cpp``."""
