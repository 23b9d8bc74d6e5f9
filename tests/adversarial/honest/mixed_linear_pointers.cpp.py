# /// redteam
# problem = "mixed_linear"
# devices = ["cpu"]
# what = "Multiplies bf16 inputs by fp32 weights, with several sums per output."
# style = "mixed_pointers"
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

torch::Tensor linear(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  const int64_t m = x.size(0), k = x.size(1), n = w.size(0);
  auto y = torch::empty({m, n}, x.options().dtype(torch::kFloat32));
  const auto* in = x.data_ptr<at::BFloat16>();
  const float* weight = w.data_ptr<float>();
  const float* bias = b.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sums[8] = {};
      for (int64_t l = 0; l < k; ++l) {
        sums[l % 8] += static_cast<float>(in[i * k + l]) * weight[j * k + l];
      }
      float total = bias[j];
      for (float sum : sums) total += sum;
      out[i * n + j] = total;
    }
  }
  return y;
}
"""

extension = load_inline(
    name="mixed_linear_pointers",
    cpp_sources=SOURCE,
    functions=["linear"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return extension.linear(x, self.linear.weight, self.linear.bias)
