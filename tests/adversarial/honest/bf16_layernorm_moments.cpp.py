# /// redteam
# problem = "bf16_layernorm"
# devices = ["cpu"]
# what = "Takes the first two moments of at::BFloat16 rows in fp64 in one pass."
# style = "half_pointers"
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <cmath>

torch::Tensor layernorm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
  auto y = torch::empty_like(x);
  const int64_t rows = x.size(0), features = x.size(1);
  const auto* in = x.data_ptr<at::BFloat16>();
  const auto* weight = w.data_ptr<at::BFloat16>();
  const auto* bias = b.data_ptr<at::BFloat16>();
  auto* out = y.data_ptr<at::BFloat16>();
  for (int64_t row = 0; row < rows; ++row, in += features, out += features) {
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < features; ++i) {
      const double value = static_cast<float>(in[i]);
      sum += value;
      squares += value * value;
    }
    const double mean = sum / features;
    const double scale = 1.0 / std::sqrt(squares / features - mean * mean + eps);
    for (int64_t i = 0; i < features; ++i) {
      const double unit = (static_cast<float>(in[i]) - mean) * scale;
      out[i] = static_cast<float>(
          unit * static_cast<float>(weight[i]) + static_cast<float>(bias[i]));
    }
  }
  return y;
}
"""

extension = load_inline(
    name="bf16_layernorm_moments",
    cpp_sources=SOURCE,
    functions=["layernorm"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features).to(torch.bfloat16)

    def forward(self, x):
        return extension.layernorm(x, self.norm.weight, self.norm.bias, self.norm.eps)
