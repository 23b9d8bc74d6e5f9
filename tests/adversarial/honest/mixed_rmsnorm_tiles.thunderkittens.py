# /// redteam
# problem = "mixed_rmsnorm"
# devices = ["cuda"]
# what = "Sixteen rows in a tile; their mean squares are a column, the fp32 weights a row."
# ///
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor weight);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int ROWS = 16, COLUMNS = 256;
using matrix_gl = gl<bf16, 1, 1, -1, COLUMNS>;
using weight_gl = gl<float, 1, 1, 1, COLUMNS>;
using tile = rt_fl<ROWS, COLUMNS / 2>;
struct globals { matrix_gl x, y; weight_gl weight; };

__global__ void rmsnorm_kernel(const __grid_constant__ globals g) {
  const int row = blockIdx.x;
  tile values, squares;
  tile::col_vec scale;
  tile::row_vec weight;
  warp::zero(scale);
  for (int part = 0; part < 2; part++) {
    warp::load(values, g.x, {row, part});
    warp::mul(squares, values, values);
    warp::row_sum(scale, squares, scale);
  }
  warp::apply(scale, scale, [](int i, float sum) { return rsqrtf(sum / COLUMNS + 1e-6f); });
  for (int part = 0; part < 2; part++) {
    warp::load(values, g.x, {row, part});
    warp::load(weight, g.weight, {part});
    warp::mul_row(values, values, scale);
    warp::mul_col(values, values, weight);
    warp::store(g.y, values, {row, part});
  }
}

torch::Tensor rmsnorm(torch::Tensor x_in, torch::Tensor weight) {
  auto x = x_in.contiguous();
  const int64_t rows = x.size(0);
  TORCH_CHECK(x.scalar_type() == torch::kBFloat16, "a matrix in bf16");
  TORCH_CHECK(weight.scalar_type() == torch::kFloat, "weights in fp32");
  TORCH_CHECK(rows % ROWS == 0 && x.size(1) == COLUMNS, "whole tiles of 256 columns");
  auto y = torch::empty_like(x);
  auto matrix = [rows](torch::Tensor t) {
    return matrix_gl{reinterpret_cast<bf16 *>(t.data_ptr()), nullptr, nullptr,
                     static_cast<size_t>(rows), nullptr};
  };
  weight_gl scales{weight.data_ptr<float>(), nullptr, nullptr, nullptr, nullptr};
  rmsnorm_kernel<<<rows / ROWS, WARP_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      globals{matrix(x), matrix(y), scales});
  return y;
}
"""

extension = load_inline(
    name="rmsnorm",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["rmsnorm"],
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
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return extension.rmsnorm(x, self.weight)
