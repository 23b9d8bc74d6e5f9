# /// redteam
# problem = "bf16_row_sum"
# devices = ["cuda"]
# what = "Row sums of tiles of 16 rows, in fp32, tile by tile along the rows."
# ///
import os

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor row_sum(torch::Tensor x);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int ROWS = 16, WIDTH = 64;
using matrix_gl = gl<bf16, 1, 1, -1, -1>;
struct globals { matrix_gl x, sums; };

__global__ void row_sum_kernel(const __grid_constant__ globals g) {
  rt_fl<ROWS, WIDTH> tile;
  rt_fl<ROWS, WIDTH>::col_vec sums;
  const int row = blockIdx.x;
  warp::zero(sums);
  for (int column = 0; column < g.x.cols() / WIDTH; column++) {
    warp::load(tile, g.x, {row, column});
    warp::row_sum(sums, tile, sums);
  }
  warp::store(g.sums, sums, {row});
}

torch::Tensor row_sum(torch::Tensor x_in) {
  auto x = x_in.contiguous();
  const int64_t rows = x.size(0), columns = x.size(1);
  TORCH_CHECK(x.scalar_type() == torch::kBFloat16, "a matrix in bf16");
  TORCH_CHECK(rows % ROWS == 0 && columns % WIDTH == 0, "whole tiles");
  auto sums = torch::empty({rows}, x.options());
  auto matrix = [](torch::Tensor t, int64_t rows, int64_t columns) {
    return matrix_gl{reinterpret_cast<bf16 *>(t.data_ptr()), nullptr, nullptr,
              static_cast<size_t>(rows), static_cast<size_t>(columns)};
  };
  row_sum_kernel<<<rows / ROWS, WARP_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      globals{matrix(x, rows, columns), matrix(sums, 1, rows)});
  return sums;
}
"""

extension = load_inline(
    name="row_sum",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["row_sum"],
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
        return extension.row_sum(x)
