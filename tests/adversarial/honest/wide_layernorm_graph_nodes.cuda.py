# /// redteam
# problem = "wide_layernorm"
# devices = ["cuda"]
# what = "Keeps a graph of two kernels, whose pointers it sets anew in every call."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__device__ float block_sum(float value, float* shared) {
  for (int s = 16; s > 0; s /= 2) value += __shfl_xor_sync(0xffffffffu, value, s);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < 8; ++i) total += shared[i];
  __syncthreads();
  return total;
}

__global__ void moments_kernel(const float* x, float* moments, int columns, float eps) {
  __shared__ float shared[8];
  const float* in = x + (long)blockIdx.x * columns;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 256) sum += in[i];
  const float mean = block_sum(sum, shared) / columns;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 256) squares += (in[i] - mean) * (in[i] - mean);
  squares = block_sum(squares, shared);
  if (threadIdx.x == 0) {
    moments[2 * blockIdx.x] = mean;
    moments[2 * blockIdx.x + 1] = rsqrtf(squares / columns + eps);
  }
}

__global__ void normalise_kernel(const float* x, const float* moments, const float* weight,
                                 const float* bias, float* y, int columns) {
  const long start = (long)blockIdx.x * columns;
  const float mean = moments[2 * blockIdx.x], scale = moments[2 * blockIdx.x + 1];
  for (int i = threadIdx.x; i < columns; i += 256)
    y[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i];
}

struct Kept {
  cudaGraphExec_t ready = nullptr;
  cudaGraphNode_t first, second;
};

torch::Tensor layernorm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
  static Kept kept;
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  auto moments = torch::empty({input.size(0), 2}, input.options());
  const float *from = input.data_ptr<float>(), *w = weight.data_ptr<float>();
  const float* b = bias.data_ptr<float>();
  float *to = y.data_ptr<float>(), *between = moments.data_ptr<float>();
  int columns = input.size(1);
  float small = eps;
  void* first_arguments[] = {&from, &between, &columns, &small};
  void* second_arguments[] = {&from, &between, &w, &b, &to, &columns};
  cudaKernelNodeParams first = {}, second = {};
  first.func = (void*)moments_kernel;
  second.func = (void*)normalise_kernel;
  first.gridDim = second.gridDim = dim3(input.size(0));
  first.blockDim = second.blockDim = dim3(256);
  first.kernelParams = first_arguments;
  second.kernelParams = second_arguments;
  if (!kept.ready) {
    cudaGraph_t graph;
    C10_CUDA_CHECK(cudaGraphCreate(&graph, 0));
    C10_CUDA_CHECK(cudaGraphAddKernelNode(&kept.first, graph, nullptr, 0, &first));
    C10_CUDA_CHECK(cudaGraphAddKernelNode(&kept.second, graph, &kept.first, 1, &second));
    C10_CUDA_CHECK(cudaGraphInstantiate(&kept.ready, graph, 0));
  }
  C10_CUDA_CHECK(cudaGraphExecKernelNodeSetParams(kept.ready, kept.first, &first));
  C10_CUDA_CHECK(cudaGraphExecKernelNodeSetParams(kept.ready, kept.second, &second));
  C10_CUDA_CHECK(cudaGraphLaunch(kept.ready, c10::cuda::getCurrentCUDAStream()));
  return y;
}
"""
extension = load_inline(
    name="layernorm_graph_nodes",
    cpp_sources="torch::Tensor layernorm(torch::Tensor x, torch::Tensor weight, "
    "torch::Tensor bias, double eps);",
    cuda_sources=SOURCE,
    functions=["layernorm"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return extension.layernorm(x, self.norm.weight, self.norm.bias, self.norm.eps)
