# /// redteam
# problem = "heavy_chain"
# devices = ["cpu"]
# style = "parallel_for_grain"
# what = "One fused chain as a lambda under at::parallel_for."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <cmath>

torch::Tensor chain(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const float* p = in.data_ptr<float>();
  float* o = out.data_ptr<float>();
  const auto step = [](float v) {
    v = std::tanh(v * 1.5f + 0.5f) * 2.0f - 0.25f;
    v = 3.0f / (1.0f + std::exp(-v)) - 1.0f;
    v = std::sin(std::sqrt(std::fabs(v) + 0.125f) * 1.25f);
    v = std::exp(-(v * v + 0.75f)) * 4.0f - 0.5f;
    return std::fmax(v, 0.0f);
  };
  at::parallel_for(0, in.numel(), 1 << 15, [&](int64_t a, int64_t b) {
    for (int64_t i = a; i < b; ++i) o[i] = step(p[i]);
  });
  return out;
}
"""

extension = load_inline(
    name="heavy_chain_parallel_lambda",
    cpp_sources=SOURCE,
    functions=["chain"],
    extra_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.chain(x)
