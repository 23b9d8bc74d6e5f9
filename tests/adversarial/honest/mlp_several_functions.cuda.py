# /// redteam
# problem = "mlp"
# devices = ["cuda"]
# what = "Two functions in one extension, and a workspace kept between calls."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
void linear_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor out);
void linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor out);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void linear_kernel(const float* x, const float* weight, const float* bias, float* out,
                              int m, int k, int n, bool relu) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y;
  if (column >= n) return;
  float total = bias[column];
  for (int i = 0; i < k; ++i) total += x[row * k + i] * weight[column * k + i];
  out[row * n + column] = relu && total < 0.0f ? 0.0f : total;
}

static void launch(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor out,
                   bool relu) {
  const int m = x.size(0), k = x.size(1), n = weight.size(0);
  const dim3 blocks((n + 63) / 64, m);
  linear_kernel<<<blocks, 64, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
      out.data_ptr<float>(), m, k, n, relu);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void linear_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor out) {
  launch(x, weight, bias, out, true);
}

void linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor out) {
  launch(x, weight, bias, out, false);
}
"""

extension = load_inline(
    name="mlp_several_functions",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["linear_relu", "linear"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)
        self._between = None

    def forward(self, x):
        x = x.contiguous()
        if self._between is None or self._between.shape[0] != x.shape[0]:
            self._between = x.new_empty(x.shape[0], self.first.out_features)
        out = torch.empty(x.shape[0], self.second.out_features, device=x.device)
        extension.linear_relu(x, self.first.weight, self.first.bias, self._between)
        extension.linear(self._between, self.second.weight, self.second.bias, out)
        return out
