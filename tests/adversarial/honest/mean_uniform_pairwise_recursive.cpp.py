# /// redteam
# problem = "mean_uniform"
# devices = ["cpu"]
# style = "online_algorithms"
# what = "Sums pairwise by recursion, in float."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

static float pairwise(const float* p, int64_t n) {
  if (n <= 16) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += p[i];
    return sum;
  }
  return pairwise(p, n / 2) + pairwise(p + n / 2, n - n / 2);
}

torch::Tensor row_mean(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty({in.size(0)}, in.options());
  for (int64_t row = 0; row < in.size(0); ++row) {
    const float* p = in.data_ptr<float>() + row * in.size(1);
    out.data_ptr<float>()[row] = pairwise(p, in.size(1)) / in.size(1);
  }
  return out;
}
"""

extension = load_inline(
    name="mean_uniform_pairwise_recursive",
    cpp_sources=SOURCE,
    functions=["row_mean"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_mean(x)
