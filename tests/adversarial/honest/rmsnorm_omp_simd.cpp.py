# /// redteam
# problem = "rmsnorm"
# devices = ["cpu"]
# style = "openmp_pragmas"
# what = "An omp simd reduction in double over each row."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, double eps) {
  auto input = x.contiguous();
  auto out = torch::empty_like(input);
  const int64_t n = input.size(-1), rows = input.numel() / n;
  const float* w = weight.data_ptr<float>();
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = input.data_ptr<float>() + row * n;
    float* to = out.data_ptr<float>() + row * n;
    double square = 0;
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < n; ++i) square += double(in[i]) * in[i];
    const float scale = 1.0 / std::sqrt(square / n + eps);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = in[i] * scale * w[i];
  }
  return out;
}
"""

extension = load_inline(
    name="rmsnorm_omp_simd",
    cpp_sources=SOURCE,
    functions=["rms_norm"],
    extra_cflags=["-O3", "-fopenmp-simd", "-march=native"],
)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return extension.rms_norm(x, self.weight, self.eps)
