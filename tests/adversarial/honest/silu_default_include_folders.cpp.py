# /// redteam
# problem = "silu"
# devices = ["cpu"]
# style = "torch_ldflags"
# what = "Names folders that the compiler searches anyway."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor silu(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty(input.sizes(), input.options());
  const float* in = input.data_ptr<float>();
  float* out = y.data_ptr<float>();
  const int64_t n = input.numel();
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] / (1.0f + std::exp(-in[i]));
  return y;
}
"""

extension = load_inline(
    name="silu_default_include_folders",
    cpp_sources=SOURCE,
    functions=["silu"],
    extra_cflags=["-O2", "-I/usr/include", "-I", "/usr/local/include"],
    extra_ldflags=["-L/usr/local/lib", "-lc10", "-lm"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.silu(x)
