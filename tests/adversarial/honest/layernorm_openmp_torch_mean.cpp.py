# /// redteam
# problem = "layernorm"
# devices = ["cpu"]
# style = "thread_beside_torch"
# what = "Takes means with torch, and normalises under OpenMP."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
  auto input = x.contiguous();
  auto mean = input.to(torch::kFloat64).mean(1);
  auto out = torch::empty_like(input);
  const int64_t rows = input.size(0), n = input.size(1);
  const float* in = input.data_ptr<float>();
  const float* w = weight.data_ptr<float>();
  const float* b = bias.data_ptr<float>();
  const double* m = mean.data_ptr<double>();
  float* o = out.data_ptr<float>();
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    double square = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double d = in[row * n + i] - m[row];
      square += d * d;
    }
    const double scale = 1.0 / std::sqrt(square / n + eps);
    for (int64_t i = 0; i < n; ++i) {
      o[row * n + i] = (float)((in[row * n + i] - m[row]) * scale) * w[i] + b[i];
    }
  }
  return out;
}
"""

extension = load_inline(
    name="layernorm_openmp_torch_mean",
    cpp_sources=SOURCE,
    functions=["layer_norm"],
    extra_cflags=["-O3", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return extension.layer_norm(x, self.norm.weight, self.norm.bias, self.norm.eps)
