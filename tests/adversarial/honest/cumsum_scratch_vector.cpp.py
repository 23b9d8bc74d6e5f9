# /// redteam
# problem = "cumsum"
# devices = ["cpu"]
# what = "Keeps row totals in a std::vector that is filled anew in every call."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <vector>

torch::Tensor cumsum_rows(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const int64_t rows = input.size(0), columns = input.size(1);
  const float* in = input.data_ptr<float>();
  float* out = y.data_ptr<float>();
  std::vector<double> totals(rows, 0.0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      totals[row] += in[i];
      out[i] = static_cast<float>(totals[row]);
    }
  }
  return y;
}
"""

extension = load_inline(
    name="cumsum_scratch_vector",
    cpp_sources=SOURCE,
    functions=["cumsum_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.cumsum_rows(x)
