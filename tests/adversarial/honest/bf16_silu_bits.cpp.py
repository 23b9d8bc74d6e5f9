# /// redteam
# problem = "bf16_silu"
# devices = ["cpu"]
# what = "Converts bf16 by its bits, with ties to even."
# style = "half_bits"
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <cmath>
#include <cstring>

static float widened(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

static uint16_t narrowed(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  return static_cast<uint16_t>((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

torch::Tensor silu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const auto* in = static_cast<const uint16_t*>(x.data_ptr());
  auto* out = static_cast<uint16_t*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float value = widened(in[i]);
    out[i] = narrowed(value / (1.0f + std::exp(-value)));
  }
  return y;
}
"""

extension = load_inline(name="bf16_silu_bits", cpp_sources=SOURCE, functions=["silu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.silu(x)
