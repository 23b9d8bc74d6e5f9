# /// redteam
# problem = "relu"
# style = "persistent outputs"
# devices = ["cuda"]
# what = "Wraps memory of cudaMallocAsync, which no other process can open, as its output."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu_kernel(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

torch::Tensor relu(torch::Tensor x) {
  auto input = x.contiguous();
  const int64_t n = input.numel();
  cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  void* memory = nullptr;
  C10_CUDA_CHECK(cudaMallocAsync(&memory, n * sizeof(float), stream));
  relu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(input.data_ptr<float>(),
                                                   static_cast<float*>(memory), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return torch::from_blob(
      memory, input.sizes(), [stream](void* given) { cudaFreeAsync(given, stream); },
      input.options());
}
"""
extension = load_inline(
    name="relu_stream_ordered",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
