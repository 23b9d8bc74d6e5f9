# /// redteam
# problem = "softmax_cross_entropy"
# devices = ["cpu"]
# what = "Scalar output from a log-sum-exp of each row."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <algorithm>
#include <cmath>

torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor targets) {
  auto x = logits.contiguous();
  const int64_t rows = x.size(0), columns = x.size(1);
  const int64_t* target = targets.data_ptr<int64_t>();
  double loss = 0.0;
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x.data_ptr<float>() + row * columns;
    const float top = *std::max_element(in, in + columns);
    double total = 0.0;
    for (int64_t i = 0; i < columns; ++i) total += std::exp(static_cast<double>(in[i]) - top);
    loss += std::log(total) + top - in[target[row]];
  }
  auto out = torch::empty({}, x.options());
  out.data_ptr<float>()[0] = static_cast<float>(loss / rows);
  return out;
}
"""

extension = load_inline(
    name="cross_entropy_lambda",
    cpp_sources=SOURCE,
    functions=["cross_entropy"],
)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        return extension.cross_entropy(logits, targets)
