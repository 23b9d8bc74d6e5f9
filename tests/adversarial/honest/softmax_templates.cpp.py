# /// redteam
# problem = "softmax"
# devices = ["cpu"]
# what = "Templates over type and width, with a specialisation."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <cmath>
#include <limits>

namespace {

template <typename T>
struct Greatest {
  T value = -std::numeric_limits<T>::infinity();
  void take(T other) { value = other > value ? other : value; }
};

template <typename T, int kLanes>
void softmax_row(const T* in, T* out, int64_t columns) {
  Greatest<T> top;
  for (int64_t i = 0; i < columns; ++i) top.take(in[i]);
  T lanes[kLanes] = {};
  for (int64_t i = 0; i < columns; ++i) {
    out[i] = std::exp(in[i] - top.value);
    lanes[i % kLanes] += out[i];
  }
  T total = 0;
  for (T lane : lanes) total += lane;
  for (int64_t i = 0; i < columns; ++i) out[i] /= total;
}

}  // namespace

torch::Tensor softmax_rows(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const int64_t columns = input.size(1);
  for (int64_t row = 0; row < input.size(0); ++row) {
    softmax_row<float, 8>(input.data_ptr<float>() + row * columns,
                          y.data_ptr<float>() + row * columns, columns);
  }
  return y;
}
"""

extension = load_inline(
    name="softmax_templates",
    cpp_sources=SOURCE,
    functions=["softmax_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax_rows(x)
