# /// redteam
# problem = "triangular"
# devices = ["cpu"]
# style = "own_module"
# what = "Names its one function as a string, and skips the lower half."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

at::Tensor upper_product(at::Tensor x, at::Tensor y) {
  auto a = x.contiguous(), b = y.contiguous();
  const int64_t n = a.size(0);
  auto out = at::zeros_like(a);
  std::vector<double> sums(n);
  for (int64_t i = 0; i < n; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t k = 0; k < n; ++k) {
      const double left = a.data_ptr<float>()[i * n + k];
      for (int64_t j = i; j < n; ++j) sums[j] += left * b.data_ptr<float>()[k * n + j];
    }
    for (int64_t j = i; j < n; ++j) out.data_ptr<float>()[i * n + j] = (float)sums[j];
  }
  return out;
}
"""

extension = load_inline(
    name="triangular_functions_string",
    cpp_sources=SOURCE,
    functions="upper_product",
    verbose=False,
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.upper_product(x, y)
