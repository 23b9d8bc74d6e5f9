# /// redteam
# problem = "fp16_linear_gelu"
# devices = ["cuda"]
# what = "Product, bias and GELU in one kernel: the epilogue works on the tile of sums."
# ///
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = (
    "torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);"
)
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int SIZE = 64;
using shared_tile = st_hf<SIZE, SIZE>;
using matrix_gl = gl<kittens::half, 1, 1, -1, -1>;
using tile = rt_fl<SIZE / 4, SIZE>;
struct globals { matrix_gl x, weight, bias, out; };

__global__ void linear_gelu_kernel(const __grid_constant__ globals g) {
  extern __shared__ alignment_dummy memory[];
  shared_allocator allocator((int *)&memory[0]);
  shared_tile &left = allocator.allocate<shared_tile>();
  shared_tile &right = allocator.allocate<shared_tile>();
  const int row = blockIdx.y, column = blockIdx.x;
  tile total;
  tile::row_vec bias;
  warp::zero(total);
  for (int step = 0; step < g.x.cols() / SIZE; step++) {
    warpgroup::load(left, g.x, {row, step});
    warpgroup::load(right, g.weight, {column, step});
    __syncthreads();
    warpgroup::mma_ABt(total, left, right);
    warpgroup::mma_async_wait();
    __syncthreads();
  }
  warp::load(bias, g.bias, {column});
  warp::add_col(total, total, bias);
  warp::apply(total, total, [](int, int, float sum) {
    const float value = __half2float(__float2half(sum));  // as torch rounds the layer's output
    return 0.5f * value * (1.0f + erff(value * 0.70710678f));
  });
  warpgroup::store(g.out, total, {row, column});
}

torch::Tensor linear_gelu(torch::Tensor x_in, torch::Tensor weight, torch::Tensor bias) {
  auto x = x_in.contiguous();
  const int64_t rows = x.size(0), inner = x.size(1), columns = weight.size(0);
  TORCH_CHECK(x.scalar_type() == torch::kHalf, "matrices in fp16");
  TORCH_CHECK(rows % SIZE == 0 && inner % SIZE == 0 && columns % SIZE == 0, "whole tiles");
  auto out = torch::empty({rows, columns}, x.options());
  auto matrix = [](torch::Tensor t, int64_t rows, int64_t columns) {
    return matrix_gl{reinterpret_cast<kittens::half *>(t.data_ptr()), nullptr, nullptr,
              static_cast<size_t>(rows), static_cast<size_t>(columns)};
  };
  const int bytes = 2 * sizeof(shared_tile) + 1024;
  cudaFuncSetAttribute(linear_gelu_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  linear_gelu_kernel<<<dim3(columns / SIZE, rows / SIZE), 4 * WARP_THREADS, bytes,
                       c10::cuda::getCurrentCUDAStream()>>>(
      globals{matrix(x, rows, inner), matrix(weight, columns, inner), matrix(bias, 1, columns),
              matrix(out, rows, columns)});
  return out;
}
"""

extension = load_inline(
    name="linear_gelu",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["linear_gelu"],
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
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.float16)

    def forward(self, x):
        return extension.linear_gelu(x, self.linear.weight, self.linear.bias)
