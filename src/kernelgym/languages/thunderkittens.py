"""ThunderKittens: tiles in CUDA C++, from headers of a checkout that an environment variable names.

It needs no module beside the kernel: its kernels are extensions, whose builds and launches the
judge handles as those of CUDA C++.
"""

from __future__ import annotations

from kernelgym.languages.definition import Advice, HeaderRoot, Language, OwnKernel, Tool
from kernelgym.languages.examples import kernel_text, worked_examples

_VARIABLE = "THUNDERKITTENS_ROOT"
_INCLUDE = f'extra_include_paths=[os.path.join(os.environ["{_VARIABLE}"], "include")]'

THUNDERKITTENS = Language(
    name="thunderkittens",
    title="ThunderKittens (tiles in CUDA C++)",
    noun="ThunderKittens kernel",
    devices=("cuda",),
    timed_on=("cuda",),
    task="Write the computation as CUDA C++ kernels on ThunderKittens' tiles and vectors, built by "
    "`torch.utils.cpp_extension.load_inline` (`cuda_sources=`, with a declaration in "
    "`cpp_sources=`) and called from `forward`. Include `kittens.cuh` and pass "
    f"`{_INCLUDE}`, "
    '`extra_cuda_cflags=["-std=c++20", "-O3", "-gencode=arch=compute_90a,code=sm_90a", '
    '"-DKITTENS_HOPPER"]` and `extra_ldflags=["-lcuda"]`. Tensors are in bf16 or fp16; '
    "sums belong in fp32 (`rt_fl`, `rv_fl`). Tile sizes are multiples of 16. Launch on the current "
    "stream.",
    examples=worked_examples("thunderkittens"),
    sample=kernel_text("thunderkittens", "sample"),
    own_kernel=OwnKernel(
        builders=("load_inline", "load"),
        device_code=r"kittens\.cuh|prototype\.cuh|\bkittens::",
        device_marker="kittens::",
    ),
    precisions=("fp16", "bf16"),
    tools=(Tool("nvcc"), Tool("c++")),
    headers=(
        HeaderRoot(
            variable=_VARIABLE,
            holds="include/kittens.cuh",
            folders=("include", "prototype"),
            source="https://github.com/HazyResearch/ThunderKittens",
        ),
    ),
    least_capability=(9, 0),
    # On later GPUs its headers want another macro than KITTENS_HOPPER, and other kernels.
    below_capability=(10, 0),
    architecture_suffix="a",
    compiled_for=("cuda",),
    advice=(
        Advice(r"kittens\.cuh: No such file", f"pass {_INCLUDE} to load_inline"),
        Advice(
            r'has no member "(?:warpgroup|tma)"|"(?:warpgroup|tma|semaphore)" is (?:undefined|not)'
            r'|must be a class or namespace|"(?:init_semaphore|expect_bytes)" is undefined',
            "ThunderKittens declares warpgroups, semaphores and TMA for Hopper only with "
            "-DKITTENS_HOPPER in extra_cuda_cflags",
        ),
        Advice(
            r"divisible by the tile",
            "tile sizes and vector lengths are counted in elements and are multiples of 16; a rest "
            "that fills no tile is loaded and stored element by element",
        ),
        Advice(
            r"TMA descriptor for a type not initialized",
            "name each shared tile type that TMA loads or stores among the last parameters of gl",
        ),
        Advice(
            r"cannot be compiled for architecture 'sm_90'|not supported on \.target 'sm_90'",
            "warpgroups' products need sm_90a and no other architecture: in extra_cuda_cflags pass "
            "-gencode=arch=compute_90a,code=sm_90a (nvcc 13 compiles -arch=sm_90a for compute_90 "
            "as well)",
        ),
        Advice(
            r'identifier "(?:load|store|mma?_ABt?|(?:row|col)_\w+|add|sub|mul|div|exp2?|log|relu'
            r'|abs|zero|copy|apply)" is undefined',
            "operations on tiles belong to the group that runs them: warp::load, warpgroup::load, "
            "group<8>::load",
        ),
    ),
)
"""The language ``thunderkittens``."""
