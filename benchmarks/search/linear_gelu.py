"""A linear layer with GELU, and a plain C++ kernel of it: a task that no move was written for."""

from __future__ import annotations

from kernelgym import Kernel, Problem

__all__ = ["KERNEL", "PROBLEM"]

PROBLEM = Problem(
    "benchmark/linear_gelu",
    "benchmark",
    1,
    "linear_gelu",
    '''\
import torch
from torch import nn


class Model(nn.Module):
    """GELU of x W^T + b."""

    def forward(self, x, weight, bias):
        return nn.functional.gelu(nn.functional.linear(x, weight, bias))


def get_inputs():
    return [torch.randn(256, 512), torch.randn(384, 512) / 16, torch.randn(384)]


def get_init_inputs():
    return []
''',
)
KERNEL = Kernel(
    '''\
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>

torch::Tensor linear_gelu(torch::Tensor x_in, torch::Tensor w_in, torch::Tensor b_in) {
  auto x_c = x_in.contiguous();
  auto w_c = w_in.contiguous();
  auto b_c = b_in.contiguous();
  const int64_t rows = x_c.size(0);
  const int64_t inner = x_c.size(1);
  const int64_t columns = w_c.size(0);
  auto out = torch::empty({rows, columns}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  const float* w = w_c.data_ptr<float>();
  const float* b = b_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float total = b[j];
      for (int64_t k = 0; k < inner; ++k) {
        total += x[i * inner + k] * w[j * inner + k];
      }
      y[i * columns + j] = 0.5f * total * (1.0f + std::erf(total * 0.70710678f));
    }
  }
  return out;
}
"""

extension = load_inline(
    name="search_linear_gelu",
    cpp_sources=source,
    functions=["linear_gelu"],
    extra_cflags=["-O2"],
)


class ModelNew(nn.Module):
    def forward(self, x, weight, bias):
        return extension.linear_gelu(x, weight, bias)
''',
    "cpp",
)
