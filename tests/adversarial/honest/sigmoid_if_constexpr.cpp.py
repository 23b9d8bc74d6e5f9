# /// redteam
# problem = "sigmoid_uniform"
# devices = ["cpu"]
# style = "templates"
# what = "Chooses its work with if constexpr on an enum template argument."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

enum class Activation { Relu, Sigmoid };

template <Activation kind>
inline float activate(float v) {
  if constexpr (kind == Activation::Sigmoid) {
    return 1.0f / (1.0f + std::exp(-v));
  } else {
    return v > 0 ? v : 0;
  }
}

template <Activation kind>
torch::Tensor run(const torch::Tensor& x) {
  auto input = x.contiguous();
  auto out = torch::empty_like(input);
  auto* o = out.template data_ptr<float>();
  const auto* i = input.template data_ptr<float>();
  for (int64_t k = 0; k < input.numel(); ++k) o[k] = activate<kind>(i[k]);
  return out;
}

torch::Tensor sigmoid(torch::Tensor x) { return run<Activation::Sigmoid>(x); }
torch::Tensor relu(torch::Tensor x) { return run<Activation::Relu>(x); }
"""

extension = load_inline(
    name="sigmoid_if_constexpr",
    cpp_sources=SOURCE,
    functions=["sigmoid", "relu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.sigmoid(x)
