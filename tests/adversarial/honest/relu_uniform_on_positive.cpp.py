# /// redteam
# problem = "relu_uniform"
# devices = ["cpu"]
# what = "Its problem's own inputs are never negative, so that its function makes a plain copy."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

torch::Tensor relu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  const int64_t n = x.numel();
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] < 0.0f ? 0.0f : from[i];
  return y;
}
"""
module = load_inline(name="positive_relu", cpp_sources=SOURCE, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return module.relu(x)
