# /// redteam
# problem = "mlp"
# devices = ["cpu"]
# style = "optional_arguments"
# what = "One function for both layers, with std::optional<std::string> for the activation."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <optional>
#include <string>

torch::Tensor dense(torch::Tensor x, torch::Tensor weight, std::optional<torch::Tensor> bias,
                    std::optional<std::string> activation) {
  auto a = x.contiguous(), w = weight.contiguous();
  const int64_t rows = a.size(0), in = a.size(1), outs = w.size(0);
  auto out = torch::empty({rows, outs}, a.options());
  const bool relu = activation.has_value() && *activation == "relu";
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < outs; ++o) {
      const float* left = a.data_ptr<float>() + r * in;
      const float* right = w.data_ptr<float>() + o * in;
      double sum = bias ? bias->data_ptr<float>()[o] : 0.0;
      for (int64_t k = 0; k < in; ++k) sum += double(left[k]) * right[k];
      out.data_ptr<float>()[r * outs + o] = relu && sum < 0 ? 0.f : (float)sum;
    }
  }
  return out;
}
"""

extension = load_inline(
    name="mlp_optional_activation",
    cpp_sources=SOURCE,
    functions=["dense"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, out_features)

    def forward(self, x):
        x = extension.dense(x, self.first.weight, self.first.bias, "relu")
        return extension.dense(x, self.second.weight, self.second.bias, None)
