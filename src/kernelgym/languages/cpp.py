"""C++ for the CPU: extensions that `torch.utils.cpp_extension.load_inline` builds."""

from __future__ import annotations

from kernelgym.languages.definition import Language, OwnKernel, Tool
from kernelgym.languages.examples import worked_examples

_BLEND = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>

torch::Tensor blend(torch::Tensor a_in, torch::Tensor b_in, double weight) {
  auto a_c = a_in.contiguous();
  auto b_c = b_in.contiguous();
  auto out = torch::empty_like(a_c);
  const float* a = a_c.data_ptr<float>();
  const float* b = b_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  const float w = static_cast<float>(weight);
  const int64_t n = a_c.numel();
  #pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) {
    y[i] = b[i] / (1.0f + std::exp(-a[i])) + w * a[i];
  }
  return out;
}
"""

extension = load_inline(
    name="example_blend",
    cpp_sources=source,
    functions=["blend"],
    extra_cflags=["-O3", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, a, b):
        return extension.blend(a, b, self.weight)
'''

_ROW_MAX = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <limits>

torch::Tensor row_max(torch::Tensor x_in, torch::Tensor scale_in) {
  auto x_c = x_in.contiguous();
  auto scale_c = scale_in.contiguous();
  const int64_t rows = x_c.size(0);
  const int64_t columns = x_c.size(1);
  auto out = torch::empty({rows}, x_c.options());
  const float* x = x_c.data_ptr<float>();
  const float* scale = scale_c.data_ptr<float>();
  float* y = out.data_ptr<float>();
  #pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    float best = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < columns; ++c) {
      best = std::max(best, std::fabs(x[r * columns + c]) * scale[c]);
    }
    y[r] = best;
  }
  return out;
}
"""

extension = load_inline(
    name="example_row_max",
    cpp_sources=source,
    functions=["row_max"],
    extra_cflags=["-O3", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return extension.row_max(x, self.scale)
'''

_SAMPLE = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

torch::Tensor relu_scale_shift(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const float* in = input.data_ptr<float>();
  float* out = y.data_ptr<float>();
  const int64_t n = input.numel();
  for (int64_t i = 0; i < n; ++i) {
    out[i] = (in[i] > 0.0f ? in[i] : 0.0f) * 2.0f + 1.0f;
  }
  return y;
}
"""

extension = load_inline(
    name="sample_relu_scale_shift", cpp_sources=source, functions=["relu_scale_shift"]
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return extension.relu_scale_shift(x)
'''

CPP = Language(
    name="cpp",
    title="C++",
    noun="C++ extension function",
    devices=("cpu",),
    timed_on=("cpu",),
    task="Write the computation in C++, built by `torch.utils.cpp_extension.load_inline` "
    "(`cpp_sources=`) and called from `forward`. OpenMP is available.",
    examples=worked_examples(_BLEND, _ROW_MAX),
    sample=_SAMPLE,
    own_kernel=OwnKernel(builders=("load_inline", "load")),
    tools=(Tool("c++"),),
)
"""The language ``cpp``."""
