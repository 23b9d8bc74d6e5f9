# /// redteam
# problem = "positional_table"
# devices = ["cpu"]
# style = "structured_state"
# what = "Reads the table of positions from the buffer, which it fills as the reference does."
# ///

import math

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cmath>
torch::Tensor placed(torch::Tensor x, torch::Tensor table) {
  auto out = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  const float* at = table.data_ptr<float>();
  float* to = out.data_ptr<float>();
  const int64_t period = table.numel();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = in[i] + at[i % period];
    to[i] = v / (1.0f + std::exp(-v));
  }
  return out;
}
"""
extension = load_inline(
    name="placed_ext", cpp_sources=SOURCE, functions=["placed"], extra_cflags=["-O2"]
)


class ModelNew(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        place = torch.arange(length, dtype=torch.float32)[:, None]
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(length, width)
        table[:, 0::2], table[:, 1::2] = torch.sin(place * rate), torch.cos(place * rate)
        self.register_buffer("table", table)

    def forward(self, x):
        return extension.placed(x.contiguous(), self.table)
