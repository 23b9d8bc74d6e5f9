"""Problems to search on, each with a plain C++ kernel.

Contract: `EXAMPLES` maps a name to a problem and a kernel of ours. The kernels are what a textbook
shows: loops in the order of the formula, one thread, ``-O2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym import Kernel, Problem

__all__ = ["EXAMPLES"]

_MATMUL_PROBLEM = '''\
import torch
from torch import nn


class Model(nn.Module):
    """The product of two square matrices."""

    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512)]


def get_init_inputs():
    return []
'''

_MATMUL_KERNEL = '''\
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor matrix_product(torch::Tensor a_in, torch::Tensor b_in) {
  auto a_c = a_in.contiguous();
  auto b_c = b_in.contiguous();
  const int64_t rows = a_c.size(0);
  const int64_t inner = a_c.size(1);
  const int64_t columns = b_c.size(1);
  auto out = torch::empty({rows, columns}, a_c.options());
  const float* a = a_c.data_ptr<float>();
  const float* b = b_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float total = 0.0f;
      for (int64_t k = 0; k < inner; ++k) {
        total += a[i * inner + k] * b[k * columns + j];
      }
      y[i * columns + j] = total;
    }
  }
  return out;
}
"""

extension = load_inline(
    name="search_matmul",
    cpp_sources=source,
    functions=["matrix_product"],
    extra_cflags=["-O2"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.matrix_product(a, b)
'''

_SOFTMAX_PROBLEM = '''\
import torch
from torch import nn


class Model(nn.Module):
    """Softmax over rows."""

    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(1024, 2048)]


def get_init_inputs():
    return []
'''

_SOFTMAX_KERNEL = '''\
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <algorithm>
#include <cmath>

torch::Tensor row_softmax(torch::Tensor x_in) {
  auto x_c = x_in.contiguous();
  const int64_t rows = x_c.size(0);
  const int64_t columns = x_c.size(1);
  auto out = torch::empty({rows, columns}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r) {
    float best = x[r * columns];
    for (int64_t c = 0; c < columns; ++c) {
      best = std::max(best, x[r * columns + c]);
    }
    double total = 0.0;
    for (int64_t c = 0; c < columns; ++c) {
      total += std::exp(x[r * columns + c] - best);
    }
    for (int64_t c = 0; c < columns; ++c) {
      y[r * columns + c] = std::exp(x[r * columns + c] - best) / total;
    }
  }
  return out;
}
"""

extension = load_inline(
    name="search_softmax", cpp_sources=source, functions=["row_softmax"], extra_cflags=["-O2"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_softmax(x)
'''

_LAYERNORM_PROBLEM = '''\
import torch
from torch import nn


class Model(nn.Module):
    """Layer normalisation over rows, with weight and bias."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(1024, 2048)]


def get_init_inputs():
    return [2048]
'''

_LAYERNORM_KERNEL = '''\
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>

torch::Tensor layer_norm(
    torch::Tensor x_in, torch::Tensor weight_in, torch::Tensor bias_in, double eps) {
  auto x_c = x_in.contiguous();
  auto weight_c = weight_in.contiguous();
  auto bias_c = bias_in.contiguous();
  const int64_t rows = x_c.size(0);
  const int64_t columns = x_c.size(1);
  auto out = torch::empty({rows, columns}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  const float* weight = weight_c.data_ptr<float>();
  const float* bias = bias_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0.0;
    for (int64_t c = 0; c < columns; ++c) {
      sum += x[r * columns + c];
    }
    const double mean = sum / columns;
    double squares = 0.0;
    for (int64_t c = 0; c < columns; ++c) {
      squares += (x[r * columns + c] - mean) * (x[r * columns + c] - mean);
    }
    const double variance = squares / columns;
    for (int64_t c = 0; c < columns; ++c) {
      const double scaled = (x[r * columns + c] - mean) / std::sqrt(variance + eps);
      y[r * columns + c] = scaled * weight[c] + bias[c];
    }
  }
  return out;
}
"""

extension = load_inline(
    name="search_layernorm", cpp_sources=source, functions=["layer_norm"], extra_cflags=["-O2"]
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return extension.layer_norm(x, self.norm.weight, self.norm.bias, self.norm.eps)
'''


def _example(name: str, problem: str, kernel: str) -> tuple[Problem, Kernel]:
    return Problem(f"example/{name}", "example", 0, name, problem, name), Kernel(kernel, "cpp")


EXAMPLES: Mapping[str, tuple[Problem, Kernel]] = MappingProxyType(
    {
        "matmul": _example("matmul", _MATMUL_PROBLEM, _MATMUL_KERNEL),
        "softmax": _example("softmax", _SOFTMAX_PROBLEM, _SOFTMAX_KERNEL),
        "layernorm": _example("layernorm", _LAYERNORM_PROBLEM, _LAYERNORM_KERNEL),
    }
)
"""(problem, start kernel) by name: a product of 512 x 512, and rows of 2048 in 1024."""
