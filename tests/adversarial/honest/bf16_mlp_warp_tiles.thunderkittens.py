# /// redteam
# problem = "bf16_mlp"
# devices = ["cuda"]
# what = "Each warp multiplies tiles of 16 rows in registers; ReLU in the epilogue of two layers."
# ///
import os

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = (
    "torch::Tensor linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, bool relu);"
)
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int ROWS = 16, COLUMNS = 64, INNER = 32;
using matrix_gl = gl<bf16, 1, 1, -1, -1>;
using tile = rt_fl<ROWS, COLUMNS>;
struct globals { matrix_gl x, weight, bias, out; bool relu; };

__global__ void linear_kernel(const __grid_constant__ globals g) {
  const int row = blockIdx.y, column = blockIdx.x;
  rt_bf<ROWS, INNER> left;
  rt_bf<COLUMNS, INNER> right;
  tile total;
  tile::row_vec bias;
  warp::zero(total);
  for (int step = 0; step < g.x.cols() / INNER; step++) {
    warp::load(left, g.x, {row, step});
    warp::load(right, g.weight, {column, step});
    warp::mma_ABt(total, left, right, total);
  }
  warp::load(bias, g.bias, {column});
  warp::add_col(total, total, bias);
  if (g.relu) warp::relu(total, total);
  warp::store(g.out, total, {row, column});
}

torch::Tensor linear(torch::Tensor x_in, torch::Tensor weight, torch::Tensor bias, bool relu) {
  auto x = x_in.contiguous();
  const int64_t rows = x.size(0), inner = x.size(1), columns = weight.size(0);
  TORCH_CHECK(x.scalar_type() == torch::kBFloat16, "matrices in bf16");
  TORCH_CHECK(rows % ROWS == 0 && inner % INNER == 0 && columns % COLUMNS == 0, "whole tiles");
  auto out = torch::empty({rows, columns}, x.options());
  auto matrix = [](torch::Tensor t, int64_t rows, int64_t columns) {
    return matrix_gl{reinterpret_cast<bf16 *>(t.data_ptr()), nullptr, nullptr,
              static_cast<size_t>(rows), static_cast<size_t>(columns)};
  };
  linear_kernel<<<dim3(columns / COLUMNS, rows / ROWS), WARP_THREADS, 0,
                  c10::cuda::getCurrentCUDAStream()>>>(
      globals{matrix(x, rows, inner), matrix(weight, columns, inner), matrix(bias, 1, columns),
              matrix(out, rows, columns), relu});
  return out;
}
"""

extension = load_inline(
    name="linear",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["linear"],
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
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3)).bfloat16()

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = extension.linear(x, layer.weight, layer.bias, number < 2)
        return x
