# /// redteam
# problem = "heavy_chain"
# devices = ["cpu"]
# what = "Fuses twenty steps over four million values: honestly faster."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <cmath>

torch::Tensor chain(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const float* in = input.data_ptr<float>();
  float* out = y.data_ptr<float>();
  at::parallel_for(0, input.numel(), 65536, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float v = std::tanh(in[i] * 1.5f + 0.5f) * 2.0f - 0.25f;
      v = 3.0f / (1.0f + std::exp(-v)) - 1.0f;
      v = std::sin(std::sqrt(std::fabs(v) + 0.125f) * 1.25f);
      v = std::exp(-(v * v + 0.75f)) * 4.0f - 0.5f;
      out[i] = v > 0.0f ? v : 0.0f;
    }
  });
  return y;
}
"""

extension = load_inline(
    name="heavy_chain_fused",
    cpp_sources=SOURCE,
    functions=["chain"],
    extra_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.chain(x)
