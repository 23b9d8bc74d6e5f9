# /// redteam
# problem = "layernorm"
# devices = ["cpu"]
# what = "A static thread-local scratch buffer, rewritten before it is read."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <cmath>
#include <vector>

torch::Tensor layernorm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
  static thread_local std::vector<float> centred;
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const int64_t columns = input.size(1);
  const float* w = weight.data_ptr<float>();
  const float* b = bias.data_ptr<float>();
  centred.resize(columns);
  for (int64_t row = 0; row < input.size(0); ++row) {
    const float* in = input.data_ptr<float>() + row * columns;
    float* out = y.data_ptr<float>() + row * columns;
    double total = 0.0;
    for (int64_t i = 0; i < columns; ++i) total += in[i];
    const float mean = static_cast<float>(total / columns);
    double squares = 0.0;
    for (int64_t i = 0; i < columns; ++i) {
      centred[i] = in[i] - mean;
      squares += static_cast<double>(centred[i]) * centred[i];
    }
    const float scale = static_cast<float>(1.0 / std::sqrt(squares / columns + eps));
    for (int64_t i = 0; i < columns; ++i) out[i] = centred[i] * scale * w[i] + b[i];
  }
  return y;
}
"""

extension = load_inline(
    name="layernorm_static_scratch",
    cpp_sources=SOURCE,
    functions=["layernorm"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        norm = self.norm
        return extension.layernorm(x, norm.weight, norm.bias, norm.eps)
