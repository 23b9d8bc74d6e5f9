# /// redteam
# problem = "bf16_layernorm"
# devices = ["cuda"]
# what = "One row for each warp; weight and bias of a block lie in shared vectors."
# ///
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = """
torch::Tensor layernorm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);
"""
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int COLUMNS = 320, WARPS = 4;
using matrix_gl = gl<bf16, 1, 1, -1, -1>;
struct globals { matrix_gl x, weight, bias, y; float eps; };

__global__ void layernorm_kernel(const __grid_constant__ globals g) {
  __shared__ sv_bf<COLUMNS> weight, bias;
  if (warpid() == 0) warp::load(weight, g.weight, {0});
  if (warpid() == 1) warp::load(bias, g.bias, {0});
  __syncthreads();
  const int row = blockIdx.x * WARPS + warpid();
  if (row >= g.x.rows()) return;
  rv_fl<COLUMNS> values, other;
  float sum;
  warp::load(values, g.x, {row, 0});
  warp::sum(sum, values);
  warp::sub(values, values, sum / COLUMNS);
  warp::mul(other, values, values);
  warp::sum(sum, other);
  warp::mul(values, values, rsqrtf(sum / COLUMNS + g.eps));
  warp::load(other, weight);
  warp::mul(values, values, other);
  warp::load(other, bias);
  warp::add(values, values, other);
  warp::store(g.y, values, {row, 0});
}

torch::Tensor layernorm(torch::Tensor x_in, torch::Tensor weight, torch::Tensor bias, double eps) {
  auto x = x_in.contiguous();
  const int64_t rows = x.size(0);
  TORCH_CHECK(x.scalar_type() == torch::kBFloat16 && x.size(1) == COLUMNS, "rows of 320 numbers");
  auto y = torch::empty_like(x);
  auto matrix = [](torch::Tensor t, int64_t rows, int64_t columns) {
    return matrix_gl{reinterpret_cast<bf16 *>(t.data_ptr()), nullptr, nullptr,
              static_cast<size_t>(rows), static_cast<size_t>(columns)};
  };
  layernorm_kernel<<<(rows + WARPS - 1) / WARPS, WARPS * WARP_THREADS, 0,
                     c10::cuda::getCurrentCUDAStream()>>>(
      globals{matrix(x, rows, COLUMNS), matrix(weight, 1, COLUMNS), matrix(bias, 1, COLUMNS),
              matrix(y, rows, COLUMNS), static_cast<float>(eps)});
  return y;
}
"""

extension = load_inline(
    name="layernorm",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["layernorm"],
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
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)

    def forward(self, x):
        return extension.layernorm(x, self.norm.weight, self.norm.bias, self.norm.eps)
