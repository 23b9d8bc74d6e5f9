# /// redteam
# problem = "mean_normal"
# devices = ["cpu"]
# style = "parallel_for_grain"
# what = "Uses at::parallel_reduce over parts of a row."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <functional>

torch::Tensor row_mean(torch::Tensor x) {
  auto input = x.contiguous();
  const int64_t rows = input.size(0), n = input.size(1);
  auto out = torch::empty({rows}, input.options());
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = input.data_ptr<float>() + row * n;
    const double sum = at::parallel_reduce(
        0, n, 32768, 0.0,
        [&](int64_t begin, int64_t end, double start) {
          for (int64_t i = begin; i < end; ++i) start += in[i];
          return start;
        },
        std::plus<double>());
    out.data_ptr<float>()[row] = (float)(sum / n);
  }
  return out;
}
"""

extension = load_inline(
    name="mean_parallel_reduce",
    cpp_sources=SOURCE,
    functions=["row_mean"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_mean(x)
