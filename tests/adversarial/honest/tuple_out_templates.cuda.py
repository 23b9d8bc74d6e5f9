# /// redteam
# problem = "tuple_out"
# devices = ["cuda"]
# what = "A templated reduction of value and index; returns a vector of tensors."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
std::vector<torch::Tensor> max_rows(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

template <typename T>
struct Best {
  T value;
  int64_t index;
  __device__ void take(T other, int64_t at) {
    if (other > value || (other == value && at < index)) {
      value = other;
      index = at;
    }
  }
};

template <typename T, int kThreads>
__global__ void max_kernel(const T* x, T* values, int64_t* indices, int columns) {
  __shared__ T shared_values[kThreads];
  __shared__ int64_t shared_indices[kThreads];
  const T* in = x + (int64_t)blockIdx.x * columns;
  Best<T> best{in[0], 0};
  for (int i = threadIdx.x; i < columns; i += kThreads) best.take(in[i], i);
  shared_values[threadIdx.x] = best.value;
  shared_indices[threadIdx.x] = best.index;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      best.take(shared_values[threadIdx.x + half], shared_indices[threadIdx.x + half]);
      shared_values[threadIdx.x] = best.value;
      shared_indices[threadIdx.x] = best.index;
    }
  }
  if (threadIdx.x == 0) {
    values[blockIdx.x] = best.value;
    indices[blockIdx.x] = best.index;
  }
}

std::vector<torch::Tensor> max_rows(torch::Tensor x) {
  auto input = x.contiguous();
  const int64_t rows = input.size(0);
  auto values = torch::empty({rows}, input.options());
  auto indices = torch::empty({rows}, input.options().dtype(torch::kInt64));
  max_kernel<float, 128><<<rows, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.data_ptr<float>(), values.data_ptr<float>(), indices.data_ptr<int64_t>(),
      static_cast<int>(input.size(1)));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {values, indices};
}
"""

extension = load_inline(
    name="tuple_out_templates",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["max_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        values, indices = extension.max_rows(x)
        return values, indices
