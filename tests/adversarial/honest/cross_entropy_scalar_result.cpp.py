# /// redteam
# problem = "softmax_cross_entropy"
# devices = ["cpu"]
# style = "tensor_scalar"
# what = "Returns its mean as torch::tensor(value, options), which has no dimension."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor targets) {
  TORCH_CHECK(logits.dim() == 2 && targets.dim() == 1, "expected (N, C) and (N)");
  auto input = logits.contiguous();
  auto labels = targets.contiguous();
  const int64_t rows = input.size(0), classes = input.size(1);
  const float* in = input.data_ptr<float>();
  const int64_t* label = labels.data_ptr<int64_t>();
  double total = 0.0;
  for (int64_t row = 0; row < rows; ++row) {
    const float* at_row = in + row * classes;
    double largest = at_row[0];
    for (int64_t i = 1; i < classes; ++i) largest = std::max(largest, (double)at_row[i]);
    double sum = 0.0;
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(at_row[i] - largest);
    total += largest + std::log(sum) - at_row[label[row]];
  }
  return torch::tensor(total / rows, logits.options());
}
"""

extension = load_inline(
    name="cross_entropy_scalar_result",
    cpp_sources=SOURCE,
    functions=["cross_entropy"],
)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return extension.cross_entropy(logits, targets)
