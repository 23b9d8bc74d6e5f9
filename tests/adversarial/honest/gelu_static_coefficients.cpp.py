# /// redteam
# problem = "gelu_uniform"
# devices = ["cpu"]
# style = "static_tables"
# what = "A static table of coefficients fills itself once, before the first call."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <array>
#include <cmath>

namespace {
struct Constants {
  std::array<double, 2> value;
  Constants() : value{0.5, std::sqrt(0.5)} {}
};
const Constants& constants() {
  static const Constants made;
  return made;
}
}  // namespace

torch::Tensor gelu(torch::Tensor x) {
  const auto& c = constants().value;
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const float* p = in.data_ptr<float>();
  float* o = out.data_ptr<float>();
  for (int64_t i = 0; i < in.numel(); ++i) o[i] = c[0] * p[i] * (1.0 + std::erf(p[i] * c[1]));
  return out;
}
"""

extension = load_inline(
    name="gelu_static_coefficients",
    cpp_sources=SOURCE,
    functions=["gelu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.gelu(x)
