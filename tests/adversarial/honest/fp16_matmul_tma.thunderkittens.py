# /// redteam
# problem = "fp16_matmul"
# devices = ["cuda"]
# what = "One thread has TMA fetch the next tiles while a warpgroup multiplies the ones before."
# ///
import os

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor multiply(torch::Tensor x, torch::Tensor y);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int SIZE = 64, STAGES = 2;
using shared_tile = st_hf<SIZE, SIZE>;
using matrix_gl = gl<kittens::half, 1, 1, -1, -1, shared_tile>;
struct globals { matrix_gl x, y, out; };

__global__ void matmul_kernel(const __grid_constant__ globals g) {
  extern __shared__ alignment_dummy memory[];
  shared_allocator allocator((int *)&memory[0]);
  shared_tile(&left)[STAGES] = allocator.allocate<shared_tile, STAGES>();
  shared_tile(&right)[STAGES] = allocator.allocate<shared_tile, STAGES>();
  __shared__ semaphore arrived[STAGES];
  const int row = blockIdx.y, column = blockIdx.x, steps = g.x.cols() / SIZE;
  auto fetch = [&](int step) {
    const int stage = step % STAGES;
    tma::expect_bytes(arrived[stage], 2 * sizeof(shared_tile));
    tma::load_async(left[stage], g.x, {row, step}, arrived[stage]);
    tma::load_async(right[stage], g.y, {column, step}, arrived[stage]);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; stage++) init_semaphore(arrived[stage], 0, 1);
    fetch(0);
  }
  __syncthreads();
  rt_fl<SIZE / 4, SIZE> total;
  warp::zero(total);
  for (int step = 0; step < steps; step++) {
    const int stage = step % STAGES;
    // The stage of step + 1 was read in step - 1, which every warp has finished.
    if (threadIdx.x == 0 && step + 1 < steps) fetch(step + 1);
    wait(arrived[stage], (step / STAGES) % 2);
    warpgroup::mma_ABt(total, left[stage], right[stage]);
    warpgroup::mma_async_wait();
    __syncthreads();
  }
  warpgroup::store(g.out, total, {row, column});
}

torch::Tensor multiply(torch::Tensor x_in, torch::Tensor y_in) {
  auto x = x_in.contiguous();
  auto y = y_in.contiguous();
  const int64_t rows = x.size(0), inner = x.size(1), columns = y.size(0);
  TORCH_CHECK(x.scalar_type() == torch::kHalf, "matrices in fp16");
  TORCH_CHECK(rows % SIZE == 0 && inner % SIZE == 0 && columns % SIZE == 0, "whole tiles");
  auto out = torch::empty({rows, columns}, x.options());
  auto matrix = [](torch::Tensor t, int64_t rows, int64_t columns) {
    return matrix_gl{reinterpret_cast<kittens::half *>(t.data_ptr()), nullptr, nullptr,
              static_cast<size_t>(rows), static_cast<size_t>(columns)};
  };
  const int bytes = 2 * STAGES * sizeof(shared_tile) + 1024;
  cudaFuncSetAttribute(matmul_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  matmul_kernel<<<dim3(columns / SIZE, rows / SIZE), 4 * WARP_THREADS, bytes,
                  c10::cuda::getCurrentCUDAStream()>>>(
      globals{matrix(x, rows, inner), matrix(y, columns, inner), matrix(out, rows, columns)});
  return out;
}
"""

extension = load_inline(
    name="multiply",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["multiply"],
    extra_include_paths=[os.path.join(os.environ["THUNDERKITTENS_ROOT"], "include")],
    extra_cuda_cflags=[
        "-std=c++20",
        "-O3",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-DKITTENS_HOPPER",
    ],
    extra_ldflags=["-lcuda"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.multiply(x, y)
