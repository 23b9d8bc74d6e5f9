# /// redteam
# problem = "row_sum"
# devices = ["cpu"]
# what = "Recursive pairwise summation."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

static float pairwise(const float* x, int64_t n) {
  if (n <= 16) {
    float total = 0.0f;
    for (int64_t i = 0; i < n; ++i) total += x[i];
    return total;
  }
  const int64_t half = n / 2;
  return pairwise(x, half) + pairwise(x + half, n - half);
}

torch::Tensor row_sum(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty({input.size(0)}, input.options());
  for (int64_t row = 0; row < input.size(0); ++row) {
    y.data_ptr<float>()[row] =
        pairwise(input.data_ptr<float>() + row * input.size(1), input.size(1));
  }
  return y;
}
"""

extension = load_inline(
    name="row_sum_pairwise",
    cpp_sources=SOURCE,
    functions=["row_sum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x)
