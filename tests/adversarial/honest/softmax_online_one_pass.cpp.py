# /// redteam
# problem = "softmax"
# devices = ["cpu"]
# style = "online_algorithms"
# what = "Keeps maximum and sum in one pass, rescaling the sum."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor softmax(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const int64_t n = in.size(1);
  for (int64_t row = 0; row < in.size(0); ++row) {
    const float* p = in.data_ptr<float>() + row * n;
    float* o = out.data_ptr<float>() + row * n;
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      if (p[i] > top) {
        sum *= std::exp(top - p[i]);
        top = p[i];
      }
      sum += std::exp(p[i] - top);
    }
    for (int64_t i = 0; i < n; ++i) o[i] = std::exp(p[i] - top) / sum;
  }
  return out;
}
"""

extension = load_inline(
    name="softmax_online_one_pass",
    cpp_sources=SOURCE,
    functions=["softmax"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax(x)
