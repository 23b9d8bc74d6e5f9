# /// redteam
# problem = "tuple_out"
# devices = ["cpu"]
# what = "Returns a std::vector of tensors, of two types."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <vector>

std::vector<torch::Tensor> max_rows(torch::Tensor x) {
  auto input = x.contiguous();
  const int64_t rows = input.size(0), columns = input.size(1);
  auto values = torch::empty({rows}, input.options());
  auto indices = torch::empty({rows}, input.options().dtype(torch::kInt64));
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = input.data_ptr<float>() + row * columns;
    int64_t best = 0;
    for (int64_t i = 1; i < columns; ++i) {
      if (in[i] > in[best]) best = i;
    }
    values.data_ptr<float>()[row] = in[best];
    indices.data_ptr<int64_t>()[row] = best;
  }
  return {values, indices};
}
"""

extension = load_inline(
    name="tuple_out_vector",
    cpp_sources=SOURCE,
    functions=["max_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        values, indices = extension.max_rows(x)
        return values, indices
