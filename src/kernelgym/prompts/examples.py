"""Worked examples for prompts: a reference and a correct kernel, in every language.

Each is complete and right as it stands, on the devices its language runs on. They show the form
(launching, building, keeping parameters), not tricks, and solve no suite's problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["EXAMPLES", "Example"]


@dataclass(frozen=True, slots=True)
class Example:
    """A reference program and a correct kernel for it."""

    title: str
    reference: str
    kernel: str


_BLEND_REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, a, b):
        return torch.sigmoid(a) * b + self.weight * a


def get_inputs():
    return [torch.randn(37, 129), torch.randn(37, 129)]


def get_init_inputs():
    return [0.25]
"""

_ROW_REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return (x.abs() * self.scale).amax(dim=1)


def get_inputs():
    return [torch.randn(50, 300)]


def get_init_inputs():
    return [300]
"""

_BLEND_TRITON = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def blend_kernel(a_ptr, b_ptr, out_ptr, weight, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(a_ptr + offsets, mask=mask)
    b = tl.load(b_ptr + offsets, mask=mask)
    gate = 1.0 / (1.0 + tl.exp(-a))
    tl.store(out_ptr + offsets, gate * b + weight * a, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        n = a.numel()
        blend_kernel[(triton.cdiv(n, 1024),)](a, b, out, self.weight, n, BLOCK=1024)
        return out
"""

_ROW_TRITON = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, scale_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    scale = tl.load(scale_ptr + offsets, mask=mask, other=0.0)
    value = tl.where(mask, tl.abs(x) * scale, float("-inf"))
    tl.store(out_ptr + row, tl.max(value, axis=0))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        block = triton.next_power_of_2(columns)
        row_max_kernel[(rows,)](x, self.scale, out, columns, BLOCK=block)
        return out
"""

_BLEND_CPP = '''\
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

_ROW_CPP = '''\
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

_BLEND_CUDA = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor blend(torch::Tensor a, torch::Tensor b, double weight);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void blend_kernel(const float* a, const float* b, float* y, float weight, int64_t n) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) {
    y[i] = b[i] / (1.0f + expf(-a[i])) + weight * a[i];
  }
}

torch::Tensor blend(torch::Tensor a_in, torch::Tensor b_in, double weight) {
  auto a = a_in.contiguous();
  auto b = b_in.contiguous();
  auto out = torch::empty_like(a);
  const int64_t n = a.numel();
  const int threads = 256;
  const int64_t blocks = (n + threads - 1) / threads;
  blend_kernel<<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(),
      static_cast<float>(weight), n);
  return out;
}
"""

extension = load_inline(
    name="example_blend", cpp_sources=declaration, cuda_sources=source, functions=["blend"]
)


class ModelNew(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, a, b):
        return extension.blend(a, b, self.weight)
'''

_ROW_CUDA = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor row_max(torch::Tensor x, torch::Tensor scale);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

// One block per row; the threads' maxima meet in shared memory.
__global__ void row_max_kernel(const float* x, const float* scale, float* y, int columns) {
  __shared__ float best[256];
  const float* row = x + blockIdx.x * static_cast<int64_t>(columns);
  float mine = -INFINITY;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    mine = fmaxf(mine, fabsf(row[c]) * scale[c]);
  }
  best[threadIdx.x] = mine;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      best[threadIdx.x] = fmaxf(best[threadIdx.x], best[threadIdx.x + half]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    y[blockIdx.x] = best[0];
  }
}

torch::Tensor row_max(torch::Tensor x_in, torch::Tensor scale_in) {
  auto x = x_in.contiguous();
  auto scale = scale_in.contiguous();
  auto out = torch::empty({x.size(0)}, x.options());
  row_max_kernel<<<x.size(0), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), scale.data_ptr<float>(), out.data_ptr<float>(),
      static_cast<int>(x.size(1)));
  return out;
}
"""

extension = load_inline(
    name="example_row_max", cpp_sources=declaration, cuda_sources=source, functions=["row_max"]
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return extension.row_max(x, self.scale)
'''


def _pair(blend: str, row: str) -> tuple[Example, ...]:
    return (
        Example("a gated blend, element by element", _BLEND_REFERENCE, blend),
        Example("a scaled maximum over each row, with a parameter", _ROW_REFERENCE, row),
    )


EXAMPLES: Mapping[str, tuple[Example, ...]] = MappingProxyType(
    {
        "triton": _pair(_BLEND_TRITON, _ROW_TRITON),
        "cpp": _pair(_BLEND_CPP, _ROW_CPP),
        "cuda": _pair(_BLEND_CUDA, _ROW_CUDA),
        # torch's ROCm build translates the CUDA names of an inline source itself.
        "hip": _pair(_BLEND_CUDA, _ROW_CUDA),
    }
)
"""Examples by language, the simplest first."""
