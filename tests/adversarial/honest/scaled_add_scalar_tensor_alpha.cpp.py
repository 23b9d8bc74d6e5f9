# /// redteam
# problem = "scaled_add"
# devices = ["cpu"]
# style = "tensor_scalar"
# what = "Takes its factor as a 0-d tensor that it makes with torch::scalar_tensor."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

static torch::Tensor as_tensor(double value, const torch::Tensor& like) {
  return torch::scalar_tensor(value, like.options());
}

torch::Tensor scaled_add(torch::Tensor x, torch::Tensor y, double alpha) {
  auto factor = as_tensor(alpha, x);
  const float a = factor.item<float>();
  auto out = torch::empty_like(x);
  const float* px = x.data_ptr<float>();
  const float* py = y.data_ptr<float>();
  float* po = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) po[i] = px[i] + a * py[i];
  return out;
}
"""

extension = load_inline(
    name="scaled_add_scalar_tensor_alpha",
    cpp_sources=SOURCE,
    functions=["scaled_add"],
)


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        return extension.scaled_add(x, y, alpha)
