# /// redteam
# problem = "bf16_silu"
# devices = ["cuda"]
# what = "SiLU in fp32 on vectors of a flat tensor, one for each warp."
# ///
import os

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor silu(torch::Tensor x);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int LENGTH = 512, WARPS = 4;
using flat = gl<bf16, 1, 1, 1, -1>;
struct globals { flat x, y; };

__global__ void silu_kernel(const __grid_constant__ globals g) {
  const int index = blockIdx.x * WARPS + warpid();
  if (index * LENGTH >= g.x.cols()) return;
  rv_fl<LENGTH> x, gate;
  warp::load(x, g.x, {index});
  warp::mul(gate, x, -1.0f);
  warp::exp(gate, gate);
  warp::add(gate, gate, 1.0f);
  warp::div(x, x, gate);
  warp::store(g.y, x, {index});
}

torch::Tensor silu(torch::Tensor x_in) {
  auto x = x_in.contiguous();
  TORCH_CHECK(x.scalar_type() == torch::kBFloat16 && x.numel() % LENGTH == 0, "whole vectors");
  auto y = torch::empty_like(x);
  auto as_flat = [](torch::Tensor t) {
    return flat{reinterpret_cast<bf16 *>(t.data_ptr()), nullptr, nullptr, nullptr,
                static_cast<size_t>(t.numel())};
  };
  const int64_t blocks = (x.numel() / LENGTH + WARPS - 1) / WARPS;
  silu_kernel<<<blocks, WARPS * WARP_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      globals{as_flat(x), as_flat(y)});
  return y;
}
"""

extension = load_inline(
    name="silu",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["silu"],
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
        return extension.silu(x)
