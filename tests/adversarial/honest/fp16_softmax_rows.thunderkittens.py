# /// redteam
# problem = "fp16_softmax"
# devices = ["cuda"]
# what = "One row for each warp, which keeps it in a register vector."
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

constexpr int COLUMNS = 384, WARPS = 4;
using matrix_gl = gl<kittens::half, 1, 1, -1, -1>;
struct globals { matrix_gl x, y; };

__global__ void softmax_kernel(const __grid_constant__ globals g) {
  const int row = blockIdx.x * WARPS + warpid();
  if (row >= g.x.rows()) return;
  rv_fl<COLUMNS> values;
  float highest, sum;
  warp::load(values, g.x, {row, 0});
  warp::max(highest, values);
  warp::sub(values, values, highest);
  warp::exp(values, values);
  warp::sum(sum, values);
  warp::div(values, values, sum);
  warp::store(g.y, values, {row, 0});
}

torch::Tensor softmax_rows(torch::Tensor x_in) {
  auto x = x_in.contiguous();
  TORCH_CHECK(x.scalar_type() == torch::kHalf && x.size(1) == COLUMNS, "rows of 384 fp16 numbers");
  auto y = torch::empty_like(x);
  const int64_t rows = x.size(0);
  auto matrix = [](torch::Tensor t, int64_t rows, int64_t columns) {
    return matrix_gl{reinterpret_cast<kittens::half *>(t.data_ptr()), nullptr, nullptr,
              static_cast<size_t>(rows), static_cast<size_t>(columns)};
  };
  softmax_kernel<<<(rows + WARPS - 1) / WARPS, WARPS * WARP_THREADS, 0,
                   c10::cuda::getCurrentCUDAStream()>>>(
      globals{matrix(x, rows, COLUMNS), matrix(y, rows, COLUMNS)});
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
