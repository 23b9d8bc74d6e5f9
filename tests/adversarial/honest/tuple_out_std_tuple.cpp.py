# /// redteam
# problem = "tuple_out"
# devices = ["cpu"]
# style = "tensor_lists"
# what = "Returns a std::tuple of values and indices."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <limits>
#include <tuple>

std::tuple<torch::Tensor, torch::Tensor> max_rows(const torch::Tensor& x) {
  auto in = x.contiguous();
  auto values = at::empty({in.size(0)}, in.options());
  auto indices = at::empty({in.size(0)}, in.options().dtype(at::kLong));
  for (int64_t row = 0; row < in.size(0); ++row) {
    const float* p = in.data_ptr<float>() + row * in.size(1);
    float best = -std::numeric_limits<float>::infinity();
    int64_t place = 0;
    for (int64_t i = 0; i < in.size(1); ++i) {
      if (p[i] > best) {
        best = p[i];
        place = i;
      }
    }
    values.data_ptr<float>()[row] = best;
    indices.data_ptr<int64_t>()[row] = place;
  }
  return std::make_tuple(values, indices);
}
"""

extension = load_inline(
    name="tuple_out_std_tuple",
    cpp_sources=SOURCE,
    functions=["max_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.max_rows(x)
