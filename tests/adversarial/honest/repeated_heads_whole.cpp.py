# /// redteam
# problem = "repeated_heads"
# devices = ["cpu"]
# style = "related_weights"
# what = "Computes every row of a weight, though blocks of them start equal."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <algorithm>

torch::Tensor layer(torch::Tensor x, torch::Tensor w) {
  const int64_t m = x.size(0), k = x.size(1), n = w.size(0);
  auto out = torch::empty({m, n});
  const float *X = x.data_ptr<float>(), *W = w.data_ptr<float>();
  float* O = out.data_ptr<float>();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < k; ++t) sum += X[i * k + t] * W[j * k + t];
      O[i * n + j] = std::max(sum, 0.0);
    }
  return out;
}
"""
extension = load_inline(name="whole_ext", cpp_sources=SOURCE, functions=["layer"])


class ModelNew(nn.Module):
    def __init__(self, features, block, times):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(block, features) / features**0.5).repeat(times, 1))

    def forward(self, x):
        return extension.layer(x, self.weight)
