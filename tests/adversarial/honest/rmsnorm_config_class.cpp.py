# /// redteam
# problem = "rmsnorm"
# devices = ["cpu"]
# style = "struct_config"
# what = "A class holds pointers and sizes, and its method does a row."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

namespace {

class RmsNorm {
 public:
  RmsNorm(const torch::Tensor& x, const torch::Tensor& weight, double eps)
      : in_(x.data_ptr<float>()), weight_(weight.data_ptr<float>()), n_(x.size(1)), eps_(eps) {}

  void row(int64_t index, float* out) const {
    const float* in = in_ + index * n_;
    double square = 0;
    for (int64_t i = 0; i < n_; ++i) square += static_cast<double>(in[i]) * in[i];
    const auto scale = 1.0 / std::sqrt(square / static_cast<double>(n_) + eps_);
    for (int64_t i = 0; i < n_; ++i) out[i] = static_cast<float>(in[i] * scale * weight_[i]);
  }

 private:
  const float *in_, *weight_;
  int64_t n_;
  double eps_;
};

}  // namespace

torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, double eps) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  RmsNorm norm(x, weight, eps);
  float* to = out.data_ptr<float>();
  for (int64_t row = 0; row < x.size(0); ++row) norm.row(row, to + row * x.size(1));
  return out;
}
"""

extension = load_inline(
    name="rmsnorm_config_class",
    cpp_sources=SOURCE,
    functions=["rms_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return extension.rms_norm(x, self.weight, self.eps)
