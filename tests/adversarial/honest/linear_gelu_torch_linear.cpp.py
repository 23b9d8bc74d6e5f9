# /// redteam
# problem = "linear_gelu"
# devices = ["cpu"]
# what = "Leaves the matrix product to torch, in C++, and computes GELU itself."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <cmath>

torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  auto product = at::mm(x, weight.t());
  const int64_t columns = product.size(1);
  const float* b = bias.data_ptr<float>();
  float* p = product.data_ptr<float>();
  for (int64_t i = 0; i < product.numel(); ++i) {
    const float v = p[i] + b[i % columns];
    p[i] = 0.5f * v * (1.0f + std::erf(v * 0.70710678118654752f));
  }
  return product;
}
"""

extension = load_inline(
    name="linear_gelu_torch_linear",
    cpp_sources=SOURCE,
    functions=["linear_gelu"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return extension.linear_gelu(x, self.linear.weight, self.linear.bias)
