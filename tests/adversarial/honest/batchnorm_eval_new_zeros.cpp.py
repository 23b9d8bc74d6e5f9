# /// redteam
# problem = "batchnorm_eval"
# devices = ["cpu"]
# style = "own_module"
# what = "Makes its output with new_zeros, and checks its inputs with macros of its own."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_FLOAT(x) TORCH_CHECK(x.scalar_type() == at::ScalarType::Float, #x " must be float32")
#define CHECK_INPUT(x) CHECK_CONTIGUOUS(x); CHECK_FLOAT(x)

torch::Tensor batch_norm(torch::Tensor x, torch::Tensor mean, torch::Tensor var,
                         torch::Tensor weight, torch::Tensor bias, float eps) {
  CHECK_INPUT(x);
  CHECK_INPUT(mean);
  auto out = x.new_zeros(x.sizes());
  const auto pixels = x.size(2) * x.size(3);
  for (int64_t plane = 0; plane < x.size(0) * x.size(1); ++plane) {
    const auto c = plane % x.size(1);
    const double spread = std::sqrt(double(var.data_ptr<float>()[c]) + eps);
    const double scale = weight.data_ptr<float>()[c] / spread;
    for (int64_t i = plane * pixels; i < (plane + 1) * pixels; ++i) {
      const double centred = double(x.data_ptr<float>()[i]) - mean.data_ptr<float>()[c];
      out.data_ptr<float>()[i] = centred * scale + bias.data_ptr<float>()[c];
    }
  }
  return out;
}
"""

extension = load_inline(
    name="batchnorm_eval_new_zeros",
    cpp_sources=SOURCE,
    functions=["batch_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.norm.eval()

    def forward(self, x):
        n = self.norm
        return extension.batch_norm(
            x.contiguous(), n.running_mean, n.running_var, n.weight, n.bias, n.eps
        )
