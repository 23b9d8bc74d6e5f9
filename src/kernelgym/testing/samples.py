"""The sample problem and kernels behind `kernelgym.testing`: ``y = 2 * relu(x) + 1``, 7 x 33.

Small and odd-sized on purpose: a kernel without bounds checks goes wrong on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernelgym.types import Kernel, Problem

__all__ = ["SAMPLE_BROKEN", "SAMPLE_KERNELS", "SAMPLE_PROBLEM"]

SAMPLE_PROBLEM = Problem(
    id="Sample/L1/1",
    suite="Sample",
    level=1,
    name="1_relu_scale_shift",
    family="elementwise",
    source='''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """y = 2 * relu(x) + 1"""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0


def get_inputs():
    return [torch.randn(7, 33)]


def get_init_inputs():
    return []
''',
)
"""A small elementwise problem."""

_TRITON = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_scale_shift(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        relu_scale_shift[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
        return y
"""

_CPP = '''\
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

_CUDA = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor relu_scale_shift(torch::Tensor x);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu_scale_shift_kernel(const float* in, float* out, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = fmaxf(in[i], 0.0f) * 2.0f + 1.0f;
  }
}

torch::Tensor relu_scale_shift(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const int64_t n = input.numel();
  const int threads = 256;
  relu_scale_shift_kernel<<<(n + threads - 1) / threads, threads, 0,
                            c10::cuda::getCurrentCUDAStream()>>>(
      input.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""

extension = load_inline(
    name="sample_relu_scale_shift",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["relu_scale_shift"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return extension.relu_scale_shift(x)
'''

# torch's ROCm build translates the CUDA names of an inline source itself.
_SOURCES = {"triton": _TRITON, "cpp": _CPP, "cuda": _CUDA, "hip": _CUDA}

SAMPLE_KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {language: Kernel(source, language) for language, source in _SOURCES.items()}
)
"""A correct kernel for `SAMPLE_PROBLEM` in every language."""

SAMPLE_BROKEN: Mapping[str, Kernel] = MappingProxyType(
    {
        language: Kernel(source.replace("+ 1.0", "+ 3.0"), language)
        for language, source in _SOURCES.items()
    }
)
"""A kernel for `SAMPLE_PROBLEM` in every language that runs and is wrong by a constant."""
