# /// redteam
# problem = "layernorm"
# devices = ["cpu"]
# style = "optional_arguments"
# what = "Takes weight and bias as c10::optional."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor layer_norm(torch::Tensor x, c10::optional<torch::Tensor> weight,
                         c10::optional<torch::Tensor> bias, double eps) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const int64_t n = in.size(-1), rows = in.numel() / n;
  const float* w = weight.has_value() ? weight->data_ptr<float>() : nullptr;
  const float* b = bias.has_value() ? bias.value().data_ptr<float>() : nullptr;
  for (int64_t row = 0; row < rows; ++row) {
    const float* p = in.data_ptr<float>() + row * n;
    float* o = out.data_ptr<float>() + row * n;
    double mean = 0, m2 = 0;
    for (int64_t i = 0; i < n; ++i) {  // Welford
      const double delta = p[i] - mean;
      mean += delta / (i + 1);
      m2 += delta * (p[i] - mean);
    }
    const double rstd = 1.0 / std::sqrt(m2 / n + eps);
    for (int64_t i = 0; i < n; ++i) {
      double v = (p[i] - mean) * rstd;
      if (w != nullptr) v *= w[i];
      if (b != nullptr) v += b[i];
      o[i] = (float)v;
    }
  }
  return out;
}
"""

extension = load_inline(
    name="layernorm_optional_affine",
    cpp_sources=SOURCE,
    functions=["layer_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return extension.layer_norm(x, self.norm.weight, self.norm.bias, self.norm.eps)
