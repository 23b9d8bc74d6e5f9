# /// redteam
# problem = "fp16_chain"
# devices = ["cuda"]
# what = "The whole chain on fp16 vectors, which rounds after each step as the reference does."
# ///
import os

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor chain(torch::Tensor x, torch::Tensor y);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int LENGTH = 1024, WARPS = 4;
using flat = gl<kittens::half, 1, 1, 1, -1>;
struct globals { flat x, y, out; };

__global__ void chain_kernel(const __grid_constant__ globals g) {
  const int index = blockIdx.x * WARPS + warpid();
  if (index * LENGTH >= g.x.cols()) return;
  rv_hf<LENGTH> x, y, value;
  warp::load(x, g.x, {index});
  warp::load(y, g.y, {index});
  warp::mul(value, x, y);
  warp::add(value, value, x);
  warp::relu(value, value);
  warp::mul(value, value, __float2half(0.5f));
  warp::add(value, value, y);
  warp::store(g.out, value, {index});
}

torch::Tensor chain(torch::Tensor x_in, torch::Tensor y_in) {
  auto x = x_in.contiguous();
  auto y = y_in.contiguous();
  TORCH_CHECK(x.scalar_type() == torch::kHalf && x.numel() % LENGTH == 0, "whole vectors in fp16");
  auto out = torch::empty_like(x);
  auto as_flat = [](torch::Tensor t) {
    return flat{reinterpret_cast<kittens::half *>(t.data_ptr()), nullptr, nullptr, nullptr,
                static_cast<size_t>(t.numel())};
  };
  const int64_t blocks = (x.numel() / LENGTH + WARPS - 1) / WARPS;
  chain_kernel<<<blocks, WARPS * WARP_THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      globals{as_flat(x), as_flat(y), as_flat(out)});
  return out;
}
"""

extension = load_inline(
    name="chain",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["chain"],
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
        return extension.chain(x, y)
