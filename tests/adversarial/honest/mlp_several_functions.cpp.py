# /// redteam
# problem = "mlp"
# devices = ["cpu"]
# what = "Several functions in one extension, and a workspace kept between calls."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

void linear_into(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor out) {
  const int64_t m = x.size(0), k = x.size(1), n = weight.size(0);
  TORCH_CHECK(out.size(0) == m && out.size(1) == n, "the workspace has the wrong shape");
  const float* px = x.data_ptr<float>();
  const float* pw = weight.data_ptr<float>();
  const float* pb = bias.data_ptr<float>();
  float* po = out.data_ptr<float>();
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float total = pb[j];
      for (int64_t l = 0; l < k; ++l) total += px[i * k + l] * pw[j * k + l];
      po[i * n + j] = total;
    }
  }
}

void relu_in_place(torch::Tensor x) {
  float* p = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) p[i] = p[i] > 0.0f ? p[i] : 0.0f;
}
"""

extension = load_inline(
    name="mlp_several_functions",
    cpp_sources=SOURCE,
    functions=["linear_into", "relu_in_place"],
    extra_cflags=["-O3", "-ffast-math"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)
        self._between = None

    def forward(self, x):
        if self._between is None or self._between.shape[0] != x.shape[0]:
            self._between = torch.empty(x.shape[0], self.first.out_features)
        between = self._between
        extension.linear_into(x.contiguous(), self.first.weight, self.first.bias, between)
        extension.relu_in_place(between)
        out = torch.empty(x.shape[0], self.second.out_features)
        extension.linear_into(between, self.second.weight, self.second.bias, out)
        return out
