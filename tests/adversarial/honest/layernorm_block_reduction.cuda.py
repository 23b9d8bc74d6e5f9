# /// redteam
# problem = "layernorm"
# devices = ["cuda"]
# what = "A block per row; warps reduce, then one warp reduces theirs."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor layernorm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__device__ float block_sum(float value) {
  __shared__ float parts[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  __syncthreads();  // parts may still be read from the last time
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < static_cast<int>(blockDim.x / 32); ++i) total += parts[i];
  return total;
}

__global__ void layernorm_kernel(const float* x, const float* weight, const float* bias, float* y,
                                 int columns, float eps) {
  const float* in = x + (int64_t)blockIdx.x * columns;
  float* out = y + (int64_t)blockIdx.x * columns;
  float total = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) total += in[i];
  const float mean = block_sum(total) / columns;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    squares += (in[i] - mean) * (in[i] - mean);
  }
  const float scale = 1.0f / sqrtf(block_sum(squares) / columns + eps);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    out[i] = (in[i] - mean) * scale * weight[i] + bias[i];
  }
}

torch::Tensor layernorm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  layernorm_kernel<<<input.size(0), 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
      y.data_ptr<float>(), static_cast<int>(input.size(1)), static_cast<float>(eps));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="layernorm_block_reduction",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["layernorm"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        norm = self.norm
        return extension.layernorm(x, norm.weight, norm.bias, norm.eps)
