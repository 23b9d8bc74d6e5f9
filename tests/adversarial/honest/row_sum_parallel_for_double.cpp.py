# /// redteam
# problem = "row_sum"
# devices = ["cpu"]
# style = "parallel_for_grain"
# what = "Shares rows among torch's threads with a grain size, and sums in double."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/Parallel.h>

torch::Tensor row_sum(torch::Tensor x) {
  const auto input = x.contiguous();
  auto out = at::empty({input.size(0)}, input.options());
  const auto* in = input.data_ptr<float>();
  auto* result = out.data_ptr<float>();
  const int64_t columns = input.size(1);
  at::parallel_for(0, input.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      double sum = 0.0;
      for (int64_t i = 0; i < columns; ++i) sum += in[row * columns + i];
      result[row] = static_cast<float>(sum);
    }
  });
  return out;
}
"""

extension = load_inline(
    name="row_sum_parallel_for_double",
    cpp_sources=SOURCE,
    functions=["row_sum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x)
