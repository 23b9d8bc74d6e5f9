"""Runs a CUDA kernel's source on the CPU: a thread for each of a block's, blocks one by one.

Enough for kernels that use block and thread indices, shared arrays, barriers and `__ffs`.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelgym.judge.compiling.cpp_compiler import find_compiler

_AROUND = """
#include <barrier>
#include <cstddef>
#include <thread>
#include <vector>
struct Dim { unsigned x; };
static thread_local Dim threadIdx, blockIdx, blockDim, gridDim;
static std::barrier<> *meeting;
#define __global__
#define __shared__ static
#define __syncthreads() meeting->arrive_and_wait()
#define __ffs __builtin_ffs
%s
extern "C" void launch(unsigned blocks, unsigned threads, %s) {
    std::barrier<> here(threads);
    meeting = &here;
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; ++t)
        all.emplace_back([=] {
            threadIdx = {t}; blockDim = {threads}; gridDim = {blocks};
            for (unsigned b = 0; b < blocks; ++b) {
                blockIdx = {b};
                %s(%s);
                meeting->arrive_and_wait();
            }
        });
    for (auto &each : all) each.join();
}
"""


def build(source: str, name: str, folder: Path) -> Callable[..., None]:
    """Return a function that launches the kernel as torch's NVRTC kernels are launched."""
    parameters = source[source.index("(") + 1 : source.index(")")]
    names = ", ".join(part.split()[-1].lstrip("*") for part in parameters.split(","))
    unit, library = folder / f"{name}.cpp", folder / f"{name}.so"
    unit.write_text(_AROUND % (source, parameters, name, names))
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-w"]
    subprocess.run([find_compiler(), *flags, str(unit), "-o", str(library)], check=True)
    launch = ctypes.CDLL(str(library)).launch

    def call(grid: tuple[int, ...], block: tuple[int, ...], args: list[Any]) -> None:
        given = [
            ctypes.c_void_p(arg.data_ptr()) if isinstance(arg, torch.Tensor) else ctypes.c_int(arg)
            for arg in args
        ]
        launch(ctypes.c_uint(grid[0]), ctypes.c_uint(block[0]), *given)

    return call
