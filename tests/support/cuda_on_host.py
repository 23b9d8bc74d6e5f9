"""Runs CUDA texts on the processor, thread by thread, to compare what kernels compute.

The text's host functions are ``extern "C" void run(...)`` with raw pointers. Threads of a block are
threads of the host, so that ``__syncthreads`` and shuffles are real; blocks run one after another,
so that shared memory is static. Not emulated: memory models, streams, tensor cores.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cuda.text import read_cuda

_HEAD = r"""
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint4 { unsigned x, y, z, w; };
static thread_local dim3 threadIdx(0), blockIdx(0);
static dim3 blockDim(1), gridDim(1);
static std::unique_ptr<std::barrier<>> meet;
static std::unique_ptr<std::barrier<>> warps[32];
static float passed[1024];
static std::mutex one_at_a_time;
inline void __syncthreads() { meet->arrive_and_wait(); }
inline unsigned flat() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
inline float of_lane(float value, unsigned lane) {
  std::barrier<>& warp = *warps[flat() / 32];
  passed[flat()] = value;
  warp.arrive_and_wait();
  const float got = passed[flat() / 32 * 32 + lane];
  warp.arrive_and_wait();
  return got;
}
inline float __shfl_down_sync(unsigned, float value, unsigned by) {
  const unsigned lane = flat() % 32;
  return of_lane(value, lane + by < 32 ? lane + by : lane);
}
inline float __shfl_xor_sync(unsigned, float value, unsigned by) {
  return of_lane(value, flat() % 32 ^ by);
}
inline void atomicAdd(float* at, float value) {
  std::lock_guard<std::mutex> held(one_at_a_time);
  *at += value;
}
template <typename T> inline void __stcs(T* at, T value) { *at = value; }
inline float __expf(float x) { return expf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
template <typename F> void emulate(dim3 grid, dim3 block, bool meets, F call) {
  gridDim = grid, blockDim = block;
  const unsigned count = block.x * block.y * block.z;
  for (unsigned z = 0; z < grid.z; ++z) for (unsigned y = 0; y < grid.y; ++y)
  for (unsigned x = 0; x < grid.x; ++x) {
    meet = std::make_unique<std::barrier<>>(count);
    for (auto& each : warps) each = std::make_unique<std::barrier<>>(32);
    auto one = [&](unsigned t) {
      blockIdx = dim3(x, y, z);
      threadIdx = dim3(t % block.x, t / block.x % block.y, t / block.x / block.y);
      call();
    };
    if (!meets) { for (unsigned t = 0; t < count; ++t) one(t); continue; }
    std::vector<std::thread> all;
    for (unsigned t = 0; t < count; ++t) all.emplace_back(one, t);
    for (auto& each : all) each.join();
  }
}
"""


def compiled(texts: Sequence[str], folder: Path) -> list[Any]:
    """Return the function ``run`` of each text, all compiled at once."""
    parts = [_HEAD]
    for number, text in enumerate(texts):
        plain = _emulated(text).replace('extern "C" void run(', f'extern "C" void run_{number}(')
        plain = re.sub(r"^\s*#\s*include.*$", "", plain, flags=re.MULTILINE)
        defined = re.findall(r"^\s*#\s*define\s+(\w+)", plain, re.MULTILINE)
        ended = "".join(f"\n#undef {name}" for name in defined)
        parts.append(f"namespace variant_{number} {{\n{plain}\n}}{ended}\n")
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text("\n".join(parts), encoding="utf-8")
    command = ["g++", "-std=c++20", "-O0", "-w", "-pthread", "-shared", "-fPIC"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    return [getattr(loaded, f"run_{number}") for number in range(len(texts))]


def _emulated(text: str) -> str:
    read = read_cuda(text)
    edits = []
    for launch in read.launches:
        grid, block = (text_of(each) for each in launch.configuration[:2])
        body = text_of(read.kernels[launch.kernel].body)
        meets = "true" if "__sync" in body or "__shfl" in body else "false"
        given = ", ".join(text_of(each) for each in launch.arguments)
        call = f"emulate({grid}, {block}, {meets}, [&] {{ {launch.kernel}({given}); }})"
        edits.append((launch.node, call))
    return replaced(text, edits)
