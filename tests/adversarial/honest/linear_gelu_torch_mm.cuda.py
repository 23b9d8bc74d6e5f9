# /// redteam
# problem = "linear_gelu"
# devices = ["cuda"]
# what = "Multiplies with torch, and adds bias and GELU in place on that."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
void bias_gelu_in_place(torch::Tensor x, torch::Tensor bias);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void bias_gelu(float* x, const float* bias, int64_t n, int columns) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) {
    const float v = x[i] + bias[i % columns];
    x[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
  }
}

void bias_gelu_in_place(torch::Tensor x, torch::Tensor bias) {
  const int64_t n = x.numel();
  bias_gelu<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), bias.data_ptr<float>(), n, static_cast<int>(x.size(1)));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""

extension = load_inline(
    name="linear_gelu_torch_mm",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["bias_gelu_in_place"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        product = torch.mm(x, self.linear.weight.t())
        extension.bias_gelu_in_place(product, self.linear.bias)
        return product
