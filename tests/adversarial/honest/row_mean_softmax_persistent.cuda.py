# /// redteam
# problem = "row_mean_softmax"
# devices = ["cuda"]
# what = "Persistent blocks take rows from a counter; the last one to finish normalises all sums."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__device__ float block_reduce(float value, float* shared, bool largest) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int s = 128; s > 0; s /= 2) {
    if (threadIdx.x < s) {
      const float a = shared[threadIdx.x], b = shared[threadIdx.x + s];
      shared[threadIdx.x] = largest ? fmaxf(a, b) : a + b;
    }
    __syncthreads();
  }
  const float result = shared[0];
  __syncthreads();
  return result;
}

__global__ void rows_kernel(const float* x, float* means, float* out, int* counters, int rows,
                            int columns) {
  __shared__ float shared[256];
  __shared__ int row;
  while (true) {
    if (threadIdx.x == 0) row = atomicAdd(counters, 1);
    __syncthreads();
    const int mine = row;
    __syncthreads();
    if (mine >= rows) break;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 256) sum += x[(long)mine * columns + i];
    sum = block_reduce(sum, shared, false);
    if (threadIdx.x == 0) means[mine] = sum / columns;
  }
  __threadfence();
  if (threadIdx.x == 0) row = atomicAdd(counters + 1, 1);
  __syncthreads();
  if (row != (int)gridDim.x - 1) return;
  __threadfence();
  float top = -INFINITY, total = 0.0f;
  for (int i = threadIdx.x; i < rows; i += 256) top = fmaxf(top, __ldcg(means + i));
  top = block_reduce(top, shared, true);
  for (int i = threadIdx.x; i < rows; i += 256) total += expf(__ldcg(means + i) - top);
  total = block_reduce(total, shared, false);
  for (int i = threadIdx.x; i < rows; i += 256) out[i] = expf(__ldcg(means + i) - top) / total;
}

torch::Tensor row_softmax(torch::Tensor x) {
  auto input = x.contiguous();
  const int rows = input.size(0), columns = input.size(1);
  auto means = torch::empty({rows}, input.options()), out = torch::empty_like(means);
  auto counters = torch::zeros({2}, input.options().dtype(torch::kInt32));
  rows_kernel<<<528, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.data_ptr<float>(), means.data_ptr<float>(), out.data_ptr<float>(),
      counters.data_ptr<int>(), rows, columns);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""
extension = load_inline(
    name="row_softmax_persistent",
    cpp_sources="torch::Tensor row_softmax(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["row_softmax"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_softmax(x)
