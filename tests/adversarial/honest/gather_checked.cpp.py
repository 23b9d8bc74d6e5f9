# /// redteam
# problem = "gather"
# devices = ["cpu"]
# what = "Checks every index and would raise an exception."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <stdexcept>
#include <string>

torch::Tensor gather_rows(torch::Tensor x, torch::Tensor index) {
  auto input = x.contiguous();
  auto places = index.contiguous();
  const int64_t rows = places.size(0), narrow = places.size(1), wide = input.size(1);
  auto y = torch::empty({rows, narrow}, input.options());
  const int64_t* from = places.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows * narrow; ++i) {
    if (from[i] < 0 || from[i] >= wide) {
      throw std::out_of_range("index " + std::to_string(from[i]) + " is out of range");
    }
    y.data_ptr<float>()[i] = input.data_ptr<float>()[i / narrow * wide + from[i]];
  }
  return y;
}
"""

extension = load_inline(
    name="gather_checked",
    cpp_sources=SOURCE,
    functions=["gather_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x, index):
        return extension.gather_rows(x, index)
