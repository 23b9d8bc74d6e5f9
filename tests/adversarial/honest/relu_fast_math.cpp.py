# /// redteam
# problem = "relu"
# devices = ["cpu"]
# style = "fast_math"
# what = "Compiled by -ffast-math, and drops a NaN."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor run(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const float* p = in.data_ptr<float>();
  float* o = out.data_ptr<float>();
  for (int64_t i = 0; i < in.numel(); ++i) o[i] = p[i] > 0 ? p[i] : 0;
  return out;
}
"""

extension = load_inline(
    name="relu_fast_math",
    cpp_sources=SOURCE,
    functions=["run"],
    extra_cflags=["-O3", "-ffast-math"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x)
