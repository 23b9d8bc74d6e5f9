# /// redteam
# problem = "mean_dim"
# devices = ["cpu"]
# style = "packed_accessor"
# what = "Reads through packed_accessor64 and writes through an accessor."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor mean_middle(torch::Tensor x) {
  auto out = torch::empty({x.size(0), x.size(2)}, x.options());
  auto in = x.packed_accessor64<float, 3>();
  auto to = out.accessor<float, 2>();
  for (int64_t b = 0; b < in.size(0); b++) {
    for (int64_t c = 0; c < in.size(2); c++) {
      double sum = 0;
      for (int64_t r = 0; r < in.size(1); r++) sum += in[b][r][c];
      to[b][c] = sum / in.size(1);
    }
  }
  return out;
}
"""

extension = load_inline(
    name="mean_dim_packed_accessor",
    cpp_sources=SOURCE,
    functions=["mean_middle"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.mean_middle(x)
