"""Three plain C++ kernels that searches are tried on, beside the examples and `linear_gelu`.

`tiny` takes a tenth of a millisecond: windows of it are short. `sigmoid` is elementwise, and
`distances` has three loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.search.linear_gelu import KERNEL, PROBLEM
from kernelgym import Kernel, Problem
from kernelgym_train.mcgs.examples import EXAMPLES

__all__ = ["KERNELS"]

_PROBLEM = '''\
import torch
from torch import nn


class Model(nn.Module):
    """{about}"""

    def forward(self, {arguments}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
'''
_KERNEL = '''\
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>
#include <cstdint>

{cpp}
"""
extension = load_inline(
    name="{name}", cpp_sources=source, functions=["{name}"], extra_cflags=["-O2"]
)


class ModelNew(nn.Module):
    def forward(self, {arguments}):
        return extension.{name}({arguments})
'''


def _pair(
    name: str, about: str, arguments: str, result: str, inputs: str, cpp: str
) -> tuple[Problem, Kernel]:
    problem = _PROBLEM.format(about=about, arguments=arguments, result=result, inputs=inputs)
    kernel = _KERNEL.format(name=name, cpp=cpp.strip(), arguments=arguments)
    return (
        Problem(f"benchmark/{name}", "benchmark", 1, name, problem),
        Kernel(kernel, "cpp"),
    )


_TINY = _pair(
    "tiny",
    "Rows times the sums of their squares.",
    "x",
    "x * (x * x).sum(dim=1, keepdim=True)",
    "torch.randn(256, 512)",
    """
torch::Tensor tiny(torch::Tensor x_in) {
  auto x_c = x_in.contiguous();
  const int64_t rows = x_c.size(0);
  const int64_t columns = x_c.size(1);
  auto out = torch::empty({rows, columns}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r) {
    float total = 0.0f;
    for (int64_t c = 0; c < columns; ++c) {
      total += x[r * columns + c] * x[r * columns + c];
    }
    for (int64_t c = 0; c < columns; ++c) {
      y[r * columns + c] = x[r * columns + c] * total;
    }
  }
  return out;
}
""",
)
_SIGMOID = _pair(
    "sigmoid",
    "Inputs times their sigmoids.",
    "x",
    "x * torch.sigmoid(x)",
    "torch.randn(512, 512)",
    """
torch::Tensor sigmoid(torch::Tensor x_in) {
  auto x_c = x_in.contiguous();
  const int64_t rows = x_c.size(0);
  const int64_t columns = x_c.size(1);
  auto out = torch::empty({rows, columns}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      y[r * columns + c] = x[r * columns + c] / (1.0f + std::exp(-x[r * columns + c]));
    }
  }
  return out;
}
""",
)
_DISTANCES = _pair(
    "distances",
    "Squared distances of rows.",
    "a, b",
    "((a[:, None] - b[None]) ** 2).sum(dim=2)",
    "torch.randn(192, 64), torch.randn(192, 64)",
    """
torch::Tensor distances(torch::Tensor a_in, torch::Tensor b_in) {
  auto a_c = a_in.contiguous();
  auto b_c = b_in.contiguous();
  const int64_t rows = a_c.size(0);
  const int64_t inner = a_c.size(1);
  const int64_t columns = b_c.size(0);
  auto out = torch::empty({rows, columns}, a_c.options());
  const float* a = a_c.data_ptr<float>();
  const float* b = b_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float total = 0.0f;
      for (int64_t k = 0; k < inner; ++k) {
        total += (a[i * inner + k] - b[j * inner + k]) * (a[i * inner + k] - b[j * inner + k]);
      }
      y[i * columns + j] = total;
    }
  }
  return out;
}
""",
)
KERNELS: Mapping[str, tuple[Problem, Kernel]] = MappingProxyType(
    {
        "tiny": _TINY,
        "sigmoid": _SIGMOID,
        "distances": _DISTANCES,
        "linear_gelu": (PROBLEM, KERNEL),
        "softmax": EXAMPLES["softmax"],
        "matmul": EXAMPLES["matmul"],
    }
)
"""(problem, start) by name."""
