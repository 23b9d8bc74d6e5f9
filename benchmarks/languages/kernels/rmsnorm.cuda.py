import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor weight, double eps);"
SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_fp16.h>

constexpr int kThreads = 256, kMost = 32;  // a thread holds at most 32 values of a row

__device__ float over_block(float value, float* parts, bool largest) {
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, value, step);
    value = largest ? fmaxf(value, other) : value + other;
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
  for (int w = 1; w < kThreads / 32; ++w) {
    value = largest ? fmaxf(value, parts[w]) : value + parts[w];
  }
  __syncthreads();
  return value;
}

__global__ void rmsnorm_kernel(
    const half* x, const half* weight, half* y, float eps, int columns) {
  __shared__ float parts[kThreads / 32];
  const half2* line = reinterpret_cast<const half2*>(x + blockIdx.x * int64_t(columns));
  const half2* factors = reinterpret_cast<const half2*>(weight);
  half2* out = reinterpret_cast<half2*>(y + blockIdx.x * int64_t(columns));
  float2 values[kMost / 2];
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kMost / 2; ++i) {
    const int at = i * kThreads + threadIdx.x;
    values[i] = at < columns / 2 ? __half22float2(line[at]) : make_float2(0.0f, 0.0f);
    total += values[i].x * values[i].x + values[i].y * values[i].y;
  }
  total = over_block(total, parts, false);
  const float scale = 1.0f / sqrtf(total / columns + eps);
#pragma unroll
  for (int i = 0; i < kMost / 2; ++i) {
    const int at = i * kThreads + threadIdx.x;
    if (at < columns / 2) {
      const float2 factor = __half22float2(factors[at]);
      out[at] = __floats2half2_rn(
          values[i].x * scale * factor.x, values[i].y * scale * factor.y);
    }
  }
}

torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor weight, double eps) {
  auto y = torch::empty_like(x);
  const int columns = x.size(1);
  TORCH_CHECK(columns % 2 == 0 && columns <= kMost * kThreads, "rows of this length are not held");
  rmsnorm_kernel<<<x.size(0), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const half*>(x.data_ptr<at::Half>()),
      reinterpret_cast<const half*>(weight.data_ptr<at::Half>()),
      reinterpret_cast<half*>(y.data_ptr<at::Half>()), static_cast<float>(eps), columns);
  return y;
}
"""

extension = load_inline(
    name="rmsnorm_rows", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["rmsnorm"]
)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features, dtype=torch.float16) + 0.5)

    def forward(self, x):
        return extension.rmsnorm(x.contiguous(), self.weight, self.eps)
