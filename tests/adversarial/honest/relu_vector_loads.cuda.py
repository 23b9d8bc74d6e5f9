# /// redteam
# problem = "relu"
# devices = ["cuda"]
# what = "Loads and stores four floats at once."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor relu(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu_kernel(const float4* in, float4* out, int64_t quads, const float* tail_in,
                            float* tail_out, int tail) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < quads) {
    float4 v = in[i];
    v.x = v.x > 0.0f ? v.x : 0.0f;
    v.y = v.y > 0.0f ? v.y : 0.0f;
    v.z = v.z > 0.0f ? v.z : 0.0f;
    v.w = v.w > 0.0f ? v.w : 0.0f;
    out[i] = v;
  }
  if (i < tail) {
    tail_out[i] = tail_in[i] > 0.0f ? tail_in[i] : 0.0f;
  }
}

torch::Tensor relu(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const int64_t n = input.numel(), quads = n / 4;
  const float* in = input.data_ptr<float>();
  float* out = y.data_ptr<float>();
  const int threads = 256;
  const int64_t blocks = (quads + threads - 1) / threads + 1;
  relu_kernel<<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const float4*>(in), reinterpret_cast<float4*>(out), quads, in + 4 * quads,
      out + 4 * quads, static_cast<int>(n - 4 * quads));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="relu_vector_loads",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
