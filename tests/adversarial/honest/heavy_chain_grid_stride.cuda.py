# /// redteam
# problem = "heavy_chain"
# devices = ["cuda"]
# what = "Fuses twenty steps in a grid-stride loop: honestly an order of magnitude faster."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor chain(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__device__ __forceinline__ float chain(float v) {
  v = tanhf(v * 1.5f + 0.5f) * 2.0f - 0.25f;
  v = 3.0f / (1.0f + expf(-v)) - 1.0f;
  v = sinf(sqrtf(fabsf(v) + 0.125f) * 1.25f);
  v = expf(-(v * v + 0.75f)) * 4.0f - 0.5f;
  return v > 0.0f ? v : 0.0f;
}

__global__ void chain_kernel(const float4* x, float4* y, int64_t quads) {
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < quads; i += step) {
    const float4 v = x[i];
    y[i] = make_float4(chain(v.x), chain(v.y), chain(v.z), chain(v.w));
  }
}

torch::Tensor chain(torch::Tensor x) {
  auto input = x.contiguous();
  TORCH_CHECK(input.numel() % 4 == 0, "the number of elements must be a multiple of 4");
  auto y = torch::empty_like(input);
  chain_kernel<<<1024, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const float4*>(input.data_ptr<float>()),
      reinterpret_cast<float4*>(y.data_ptr<float>()), input.numel() / 4);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="heavy_chain_grid_stride",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["chain"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.chain(x)
