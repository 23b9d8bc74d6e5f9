# /// redteam
# problem = "mlp"
# devices = ["cuda"]
# what = "Two extensions, one for the layers and one for the ReLU between them."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

LAYER = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

namespace {
__global__ void layer_kernel(const float* x, const float* weight, const float* bias, float* out,
                             int rows, int inner, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (column >= columns) return;
  float total = 0.0f;
  for (int i = 0; i < inner; ++i)
    total = fmaf(x[row * inner + i], weight[column * inner + i], total);
  out[row * columns + column] = total + bias[column];
}
}  // namespace

torch::Tensor layer(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  const int rows = x.size(0), inner = x.size(1), columns = weight.size(0);
  auto out = torch::empty({rows, columns}, x.options());
  layer_kernel<<<dim3((columns + 63) / 64, rows), 64, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(),
      rows, inner, columns);
  return out;
}
"""
RELU = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

static __global__ void relu_kernel(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = fmaxf(x[i], 0.0f);
}

void relu_(torch::Tensor x) {
  const int n = x.numel();
  relu_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), n);
}
"""

layers = load_inline(
    name="mlp_layers",
    cpp_sources="torch::Tensor layer(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);",
    cuda_sources=LAYER,
    functions=["layer"],
)
activations = load_inline(
    name="mlp_activations",
    cpp_sources="void relu_(torch::Tensor x);",
    cuda_sources=RELU,
    functions=["relu_"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)

    def forward(self, x):
        hidden = layers.layer(x, self.first.weight, self.first.bias)
        activations.relu_(hidden)
        return layers.layer(hidden, self.second.weight, self.second.bias)
