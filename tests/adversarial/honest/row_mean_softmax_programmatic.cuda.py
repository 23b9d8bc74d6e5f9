# /// redteam
# problem = "row_mean_softmax"
# devices = ["cuda"]
# what = "Launches its second kernel programmatically, and waits in it for the first one."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void mean_kernel(const float* x, float* means, int columns) {
  __shared__ float parts[8];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 256) sum += x[(long)blockIdx.x * columns + i];
  for (int s = 16; s > 0; s /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, s);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0.0f;
    for (int i = 0; i < 8; ++i) total += parts[i];
    means[blockIdx.x] = total / columns;
  }
  asm volatile("griddepcontrol.launch_dependents;");
}

__global__ void softmax_kernel(const float* means, float* out, int rows) {
  __shared__ float shared[1024];
  asm volatile("griddepcontrol.wait;" ::: "memory");
  float top = -INFINITY;
  for (int i = threadIdx.x; i < rows; i += 1024) top = fmaxf(top, means[i]);
  shared[threadIdx.x] = top;
  __syncthreads();
  for (int s = 512; s > 0; s /= 2) {
    if (threadIdx.x < s) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + s]);
    __syncthreads();
  }
  top = shared[0];
  __syncthreads();
  float total = 0.0f;
  for (int i = threadIdx.x; i < rows; i += 1024) total += expf(means[i] - top);
  shared[threadIdx.x] = total;
  __syncthreads();
  for (int s = 512; s > 0; s /= 2) {
    if (threadIdx.x < s) shared[threadIdx.x] += shared[threadIdx.x + s];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < rows; i += 1024) out[i] = expf(means[i] - top) / shared[0];
}

torch::Tensor row_softmax(torch::Tensor x) {
  auto input = x.contiguous();
  const int rows = input.size(0), columns = input.size(1);
  auto means = torch::empty({rows}, input.options()), out = torch::empty_like(means);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  mean_kernel<<<rows, 256, 0, stream>>>(input.data_ptr<float>(), means.data_ptr<float>(), columns);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1024);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  C10_CUDA_CHECK(cudaLaunchKernelEx(&config, softmax_kernel, (const float*)means.data_ptr<float>(),
                                    out.data_ptr<float>(), rows));
  return out;
}
"""
extension = load_inline(
    name="row_softmax_programmatic",
    cpp_sources="torch::Tensor row_softmax(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["row_softmax"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_softmax(x)
