# /// redteam
# problem = "gather"
# devices = ["cpu"]
# style = "packed_accessor"
# what = "packed_accessor32 over two types of values."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor gather_rows(torch::Tensor x, torch::Tensor index) {
  TORCH_CHECK(index.scalar_type() == torch::kLong, "index must be int64");
  auto out = torch::zeros_like(index, x.options());
  auto values = x.packed_accessor32<float, 2, torch::DefaultPtrTraits>();
  auto where = index.packed_accessor32<int64_t, 2, torch::DefaultPtrTraits>();
  auto to = out.packed_accessor32<float, 2, torch::DefaultPtrTraits>();
  for (int r = 0; r < where.size(0); ++r) {
    for (int c = 0; c < where.size(1); ++c) to[r][c] = values[r][where[r][c]];
  }
  return out;
}
"""

extension = load_inline(
    name="gather_packed_accessor32",
    cpp_sources=SOURCE,
    functions=["gather_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x, index):
        return extension.gather_rows(x, index)
