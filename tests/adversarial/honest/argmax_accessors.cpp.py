# /// redteam
# problem = "argmax"
# devices = ["cpu"]
# what = "Reads the input through accessors, with a helper class."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

namespace {

class Champion {
 public:
  void challenge(float value, int64_t place) {
    if (place_ < 0 || value > value_) {
      value_ = value;
      place_ = place;
    }
  }
  int64_t place() const { return place_; }

 private:
  float value_ = 0.0f;
  int64_t place_ = -1;
};

}  // namespace

torch::Tensor argmax_rows(torch::Tensor x) {
  auto y = torch::empty({x.size(0)}, x.options().dtype(torch::kLong));
  auto in = x.accessor<float, 2>();
  auto out = y.accessor<int64_t, 1>();
  for (int64_t row = 0; row < in.size(0); ++row) {
    Champion champion;
    for (int64_t i = 0; i < in.size(1); ++i) champion.challenge(in[row][i], i);
    out[row] = champion.place();
  }
  return y;
}
"""

extension = load_inline(
    name="argmax_accessors",
    cpp_sources=SOURCE,
    functions=["argmax_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.argmax_rows(x)
