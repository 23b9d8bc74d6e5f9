# /// redteam
# problem = "tiny_relu"
# devices = ["cpu"]
# style = "static_tables"
# what = "Looks a factor up in a static constexpr table by sign."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <array>
#include <cmath>

static constexpr std::array<float, 2> FACTOR = {1.0f, 0.0f};

torch::Tensor relu(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  for (int64_t i = 0; i < in.numel(); ++i) {
    const float v = in.data_ptr<float>()[i];
    out.data_ptr<float>()[i] = std::isnan(v) ? v : std::abs(v) * FACTOR[std::signbit(v)];
  }
  return out;
}
"""

extension = load_inline(
    name="relu_static_table",
    cpp_sources=SOURCE,
    functions=["relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
