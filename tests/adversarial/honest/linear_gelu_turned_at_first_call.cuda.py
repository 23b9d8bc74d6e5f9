# /// redteam
# problem = "linear_gelu"
# devices = ["cuda"]
# what = "Turns its drawn weight at the first call by a kernel, and keeps it for all later calls."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void turn_kernel(const float* w, float* turned, int columns, int inner) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < columns * inner) turned[(i % inner) * columns + i / inner] = w[i];
}

__global__ void linear_gelu_kernel(const float* x, const float* turned, const float* bias,
                                   float* out, int columns, int inner) {
  extern __shared__ float row[];
  for (int k = threadIdx.x; k < inner; k += blockDim.x) row[k] = x[(long)blockIdx.x * inner + k];
  __syncthreads();
  for (int column = threadIdx.x; column < columns; column += blockDim.x) {
    float total = bias[column];
    for (int k = 0; k < inner; ++k) total = fmaf(row[k], turned[k * columns + column], total);
    out[(long)blockIdx.x * columns + column] = 0.5f * total * (1.0f + erff(total * 0.70710678f));
  }
}

torch::Tensor turn(torch::Tensor w) {
  auto turned = torch::empty({w.size(1), w.size(0)}, w.options());
  turn_kernel<<<(w.numel() + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      w.data_ptr<float>(), turned.data_ptr<float>(), w.size(0), w.size(1));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return turned;
}

torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor turned, torch::Tensor bias) {
  const int rows = x.size(0), inner = x.size(1), columns = turned.size(1);
  auto out = torch::empty({rows, columns}, x.options());
  linear_gelu_kernel<<<rows, 192, inner * sizeof(float), c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), turned.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(),
      columns, inner);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""
extension = load_inline(
    name="turned_ext",
    cpp_sources="""
    torch::Tensor turn(torch::Tensor w);
    torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor turned, torch::Tensor bias);
    """,
    cuda_sources=SOURCE,
    functions=["turn", "linear_gelu"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.turned = None

    def forward(self, x):
        if self.turned is None:
            self.turned = extension.turn(self.linear.weight)
        return extension.linear_gelu(x.contiguous(), self.turned, self.linear.bias)
