# /// redteam
# problem = "whole_rms"
# devices = ["cuda"]
# what = "Reduces and divides in one cooperative launch, with a barrier of the whole grid."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__global__ void rms_kernel(const float* x, float* parts, float* y, long n, float eps) {
  __shared__ double shared[256];
  const long first = blockIdx.x * 256L + threadIdx.x, step = gridDim.x * 256L;
  double sum = 0.0;
  for (long i = first; i < n; i += step) sum += (double)x[i] * x[i];
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int s = 128; s > 0; s /= 2) {
    if (threadIdx.x < s) shared[threadIdx.x] += shared[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) parts[blockIdx.x] = shared[0];
  cg::this_grid().sync();
  double total = 0.0;
  for (int i = threadIdx.x; i < gridDim.x; i += 256) total += parts[i];
  shared[threadIdx.x] = total;
  __syncthreads();
  for (int s = 128; s > 0; s /= 2) {
    if (threadIdx.x < s) shared[threadIdx.x] += shared[threadIdx.x + s];
    __syncthreads();
  }
  const float root = sqrtf((float)(shared[0] / n) + eps);
  for (long i = first; i < n; i += step) y[i] = x[i] / root;
}

torch::Tensor rms(torch::Tensor x, double eps) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  int device = 0, processors = 0, blocks = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, rms_kernel, 256, 0));
  const int grid = processors * std::min(blocks, 4);
  auto parts = torch::empty({grid}, input.options());
  const float* from = input.data_ptr<float>();
  float *between = parts.data_ptr<float>(), *to = y.data_ptr<float>(), small = eps;
  long n = input.numel();
  void* arguments[] = {&from, &between, &to, &n, &small};
  C10_CUDA_CHECK(cudaLaunchCooperativeKernel((void*)rms_kernel, dim3(grid), dim3(256), arguments, 0,
                                             c10::cuda::getCurrentCUDAStream()));
  return y;
}
"""
extension = load_inline(
    name="rms_cooperative",
    cpp_sources="torch::Tensor rms(torch::Tensor x, double eps);",
    cuda_sources=SOURCE,
    functions=["rms"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.rms(x, 1e-6)
