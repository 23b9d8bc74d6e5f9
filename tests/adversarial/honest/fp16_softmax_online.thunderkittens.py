# /// redteam
# problem = "fp16_softmax"
# devices = ["cuda"]
# what = "Maximum and sum of 16 rows in one pass over tiles, then the quotients in a second."
# ///
import os

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor softmax_rows(torch::Tensor x);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int ROWS = 16, WIDTH = 64;
using matrix_gl = gl<kittens::half, 1, 1, -1, -1>;
using tile = rt_fl<ROWS, WIDTH>;
struct globals { matrix_gl x, y; };

__global__ void softmax_kernel(const __grid_constant__ globals g) {
  const int row = blockIdx.x, steps = g.x.cols() / WIDTH;
  tile values;
  tile::col_vec highest, before, sum;
  warp::neg_infty(highest);
  warp::zero(sum);
  for (int step = 0; step < steps; step++) {
    warp::load(values, g.x, {row, step});
    warp::copy(before, highest);
    warp::row_max(highest, values, highest);
    warp::sub(before, before, highest);
    warp::exp(before, before);
    warp::mul(sum, sum, before);
    warp::sub_row(values, values, highest);
    warp::exp(values, values);
    warp::row_sum(sum, values, sum);
  }
  for (int step = 0; step < steps; step++) {
    warp::load(values, g.x, {row, step});
    warp::sub_row(values, values, highest);
    warp::exp(values, values);
    warp::div_row(values, values, sum);
    warp::store(g.y, values, {row, step});
  }
}

torch::Tensor softmax_rows(torch::Tensor x_in) {
  auto x = x_in.contiguous();
  const int64_t rows = x.size(0), columns = x.size(1);
  TORCH_CHECK(x.scalar_type() == torch::kHalf, "a matrix in fp16");
  TORCH_CHECK(rows % ROWS == 0 && columns % WIDTH == 0, "whole tiles");
  auto y = torch::empty_like(x);
  auto matrix = [](torch::Tensor t, int64_t rows, int64_t columns) {
    return matrix_gl{reinterpret_cast<kittens::half *>(t.data_ptr()), nullptr, nullptr,
              static_cast<size_t>(rows), static_cast<size_t>(columns)};
  };
  softmax_kernel<<<rows / ROWS, WARP_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      globals{matrix(x, rows, columns), matrix(y, rows, columns)});
  return y;
}
"""

extension = load_inline(
    name="softmax_rows",
    cpp_sources=declaration,
    cuda_sources=source,
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
        return extension.softmax_rows(x)
