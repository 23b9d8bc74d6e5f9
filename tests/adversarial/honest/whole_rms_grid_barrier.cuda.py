# /// redteam
# problem = "whole_rms"
# devices = ["cuda"]
# what = "All blocks meet at a barrier of their own, whose counter keeps its value between calls."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__device__ unsigned int arrived = 0;

__device__ void meet() {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned int ticket = atomicAdd(&arrived, 1);
    const unsigned int goal = (ticket / gridDim.x + 1) * gridDim.x;
    while (static_cast<int>(atomicAdd(&arrived, 0) - goal) < 0) {
    }
    __threadfence();
  }
  __syncthreads();
}

__global__ void rms_kernel(const float* x, float* out, float* parts, int n, float eps) {
  __shared__ float sums[256];
  float total = 0.0f;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) total += x[i] * x[i];
  sums[threadIdx.x] = total;
  __syncthreads();
  for (int s = 128; s > 0; s /= 2) {
    if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) parts[blockIdx.x] = sums[0];
  meet();
  float whole = 0.0f;
  for (int i = 0; i < gridDim.x; ++i) whole += reinterpret_cast<volatile float*>(parts)[i];
  const float scale = 1.0f / sqrtf(whole / n + eps);
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) out[i] = x[i] * scale;
}

torch::Tensor rms(torch::Tensor x, double eps) {
  static float* parts = nullptr;
  if (!parts) C10_CUDA_CHECK(cudaMalloc(&parts, 64 * sizeof(float)));
  auto out = torch::empty_like(x);
  rms_kernel<<<64, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), parts, x.numel(), eps);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""
extension = load_inline(
    name="rms_barrier",
    cpp_sources="torch::Tensor rms(torch::Tensor x, double eps);",
    cuda_sources=SOURCE,
    functions=["rms"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.rms(x.contiguous(), 1e-6)
