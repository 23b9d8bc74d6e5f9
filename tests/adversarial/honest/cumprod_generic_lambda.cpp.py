# /// redteam
# problem = "cumprod_uniform"
# devices = ["cpu"]
# style = "templates"
# what = "A generic lambda scans with any operation."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor cumprod(torch::Tensor x) {
  auto input = x.contiguous();
  auto out = torch::empty_like(input);
  const auto rows = input.size(0), columns = input.size(1);
  auto scan = [columns](const auto* in, auto* to, auto start, auto&& combine) {
    auto value = start;
    for (int64_t i = 0; i < columns; ++i) {
      value = combine(value, in[i]);
      to[i] = value;
    }
  };
  for (int64_t row = 0; row < rows; ++row) {
    scan(input.data_ptr<float>() + row * columns, out.data_ptr<float>() + row * columns, 1.0,
         [](double a, float b) { return a * b; });
  }
  return out;
}
"""

extension = load_inline(
    name="cumprod_generic_lambda",
    cpp_sources=SOURCE,
    functions=["cumprod"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.cumprod(x)
