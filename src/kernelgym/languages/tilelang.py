"""TileLang: tiles in Python that its compiler lowers to CUDA C++, which nvcc compiles."""

from __future__ import annotations

from kernelgym.languages.definition import Language, OwnKernel, Package, Tool
from kernelgym.languages.examples import kernel_text, worked_examples

TILELANG = Language(
    name="tilelang",
    title="TileLang",
    noun="TileLang kernel",
    devices=("cuda",),
    timed_on=("cuda",),
    task="Write the computation in TileLang: functions decorated with @T.prim_func "
    "(`import tilelang.language as T`), made by a function decorated with @tilelang.jit for given "
    "shapes and types. Keep each kernel that it returns and call it from `forward`. With `out_idx` "
    "TileLang allocates the outputs and returns them.",
    examples=worked_examples("tilelang"),
    sample=kernel_text("tilelang", "sample"),
    own_kernel=OwnKernel(
        decorator="tilelang.language.prim_func",
        decorator_aliases=r"tvm\.script\.tir\.prim_func|tilelang\.jit",
        takes_plain_functions=True,
    ),
    precisions=("fp16", "bf16"),
    packages=(
        Package("tilelang", "'tilelang>=0.1.15'", (0, 1, 15)),
        Package("apache-tvm-ffi", "'apache-tvm-ffi>=0.1.11,<0.1.13'", (0, 1, 11), (0, 1, 13)),
    ),
    tools=(Tool("nvcc"), Tool("c++")),
    least_capability=(7, 0),
    half="tilelang",
    compiled_for=("cuda",),
    watched_between_calls=True,
)
"""The language ``tilelang``."""
