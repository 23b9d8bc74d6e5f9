# /// redteam
# problem = "cumsum"
# devices = ["cpu"]
# style = "packed_accessor"
# what = "Steps along strides with a TensorAccessor passed to a function."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

static void scan_row(torch::TensorAccessor<float, 1> in, torch::TensorAccessor<float, 1> out) {
  double sum = 0.0;
  for (int64_t i = 0; i < in.size(0); ++i) {
    sum += in[i];
    out[i] = static_cast<float>(sum);
  }
}

torch::Tensor cumsum(torch::Tensor x) {
  torch::Tensor out = torch::empty(x.sizes(), x.options());
  auto in = x.accessor<float, 2>();
  auto to = out.accessor<float, 2>();
  for (int64_t row = 0; row < in.size(0); ++row) scan_row(in[row], to[row]);
  return out;
}
"""

extension = load_inline(
    name="cumsum_accessor_strided",
    cpp_sources=SOURCE,
    functions=["cumsum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.cumsum(x)
