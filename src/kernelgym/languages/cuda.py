"""CUDA C++: extensions and modules whose device code nvcc or NVRTC compiles."""

from __future__ import annotations

from kernelgym.languages.definition import Language, OwnKernel, Tool
from kernelgym.languages.examples import worked_examples

_BLEND = '''\
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

_ROW_MAX = '''\
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

_SAMPLE = '''\
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

CUDA = Language(
    name="cuda",
    title="CUDA C++",
    noun="custom CUDA kernel",
    devices=("cuda",),
    timed_on=("cuda",),
    task="Write the computation as CUDA C++ kernels, built by "
    "`torch.utils.cpp_extension.load_inline` (`cuda_sources=`, with a declaration in "
    "`cpp_sources=`) and called from `forward`. Launch on the current stream.",
    examples=worked_examples(_BLEND, _ROW_MAX),
    sample=_SAMPLE,
    own_kernel=OwnKernel(
        builders=("load_inline", "load", "RawKernel", "RawModule", "_compile_kernel"),
        device_code=r"__global__|__device__|\bGPU_LAMBDA\b"
        r"|\bcutlass\b|\bthrust::|\b(?:hip)?cub::|\bck::",
        device_marker="__global__",
    ),
    # RawKernel and its like are compiled by NVRTC, which comes with PyTorch.
    tools=(Tool("nvcc", needed_by="load_inline"),),
)
"""The language ``cuda``."""
