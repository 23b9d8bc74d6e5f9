import os

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor softmax_rows(torch::Tensor x);"
SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int WARPS = 8, LENGTH = 512;  // a row of 4096 numbers, a vector for each warp
using matrix_gl = gl<kittens::half, 1, 1, -1, -1>;
struct globals { matrix_gl x, y; };

__global__ void softmax_kernel(const __grid_constant__ globals g) {
  __shared__ float highest_parts[WARPS], sum_parts[WARPS];
  const int row = blockIdx.x, part = warpid();
  rv_fl<LENGTH> values;
  float highest, sum;
  warp::load(values, g.x, {row, part});
  warp::max(highest, values);
  if (laneid() == 0) highest_parts[part] = highest;
  __syncthreads();
  for (int i = 0; i < WARPS; i++) highest = fmaxf(highest, highest_parts[i]);
  warp::sub(values, values, highest);
  warp::exp(values, values);
  warp::sum(sum, values);
  if (laneid() == 0) sum_parts[part] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int i = 0; i < WARPS; i++) sum += sum_parts[i];
  warp::mul(values, values, 1.0f / sum);
  warp::store(g.y, values, {row, part});
}

torch::Tensor softmax_rows(torch::Tensor x) {
  const int64_t rows = x.size(0), columns = x.size(1);
  TORCH_CHECK(columns == WARPS * LENGTH, "rows of 4096 numbers");
  auto y = torch::empty_like(x);
  auto matrix = [](torch::Tensor t, int64_t rows, int64_t columns) {
    return matrix_gl{reinterpret_cast<kittens::half *>(t.data_ptr()), nullptr, nullptr,
                     static_cast<size_t>(rows), static_cast<size_t>(columns)};
  };
  softmax_kernel<<<rows, WARPS * WARP_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      globals{matrix(x, rows, columns), matrix(y, rows, columns)});
  return y;
}
"""

extension = load_inline(
    name="softmax_rows",
    cpp_sources=DECLARATION,
    cuda_sources=SOURCE,
    functions=["softmax_rows"],
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
    def forward(self, x):
        return extension.softmax_rows(x.contiguous())
