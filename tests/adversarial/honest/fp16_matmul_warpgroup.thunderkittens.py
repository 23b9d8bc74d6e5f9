# /// redteam
# problem = "fp16_matmul"
# devices = ["cuda"]
# what = "A warpgroup multiplies tiles of 64 rows in shared memory; sums in fp32."
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

constexpr int SIZE = 64;
using shared_tile = st_hf<SIZE, SIZE>;
using matrix_gl = gl<kittens::half, 1, 1, -1, -1>;
struct globals { matrix_gl x, y, out; };

__global__ void matmul_kernel(const __grid_constant__ globals g) {
  extern __shared__ alignment_dummy memory[];
  shared_allocator allocator((int *)&memory[0]);
  shared_tile &left = allocator.allocate<shared_tile>();
  shared_tile &right = allocator.allocate<shared_tile>();
  const int row = blockIdx.y, column = blockIdx.x;
  rt_fl<SIZE / 4, SIZE> total;  // each of the four warps holds 16 of the rows
  warp::zero(total);
  for (int step = 0; step < g.x.cols() / SIZE; step++) {
    warpgroup::load(left, g.x, {row, step});
    warpgroup::load(right, g.y, {column, step});
    __syncthreads();
    warpgroup::mma_ABt(total, left, right);
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
  const int bytes = 2 * sizeof(shared_tile) + 1024;
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
