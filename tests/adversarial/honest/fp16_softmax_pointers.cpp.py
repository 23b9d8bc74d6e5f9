# /// redteam
# problem = "fp16_softmax"
# devices = ["cpu"]
# what = "Reads at::Half through its data pointer and converts number by number."
# style = "half_pointers"
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <cmath>
#include <vector>

torch::Tensor softmax_rows(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int64_t rows = x.size(0), columns = x.size(1);
  const at::Half* in = x.data_ptr<at::Half>();
  at::Half* out = y.data_ptr<at::Half>();
  std::vector<float> values(columns);
  for (int64_t row = 0; row < rows; ++row) {
    float top = -INFINITY, total = 0.0f;
    for (int64_t i = 0; i < columns; ++i) {
      values[i] = static_cast<float>(in[row * columns + i]);
      top = std::max(top, values[i]);
    }
    for (int64_t i = 0; i < columns; ++i) total += values[i] = std::exp(values[i] - top);
    for (int64_t i = 0; i < columns; ++i) {
      out[row * columns + i] = static_cast<at::Half>(values[i] / total);
    }
  }
  return y;
}
"""

extension = load_inline(
    name="fp16_softmax_pointers",
    cpp_sources=SOURCE,
    functions=["softmax_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax_rows(x)
