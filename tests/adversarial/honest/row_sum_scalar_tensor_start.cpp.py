# /// redteam
# problem = "row_sum"
# devices = ["cpu"]
# style = "tensor_scalar"
# what = "Makes a 0-d tensor of the row's length with torch::tensor and reads it back."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor row_sum(torch::Tensor x) {
  auto input = x.contiguous();
  auto out = torch::zeros({input.size(0)}, input.options());
  auto columns = torch::tensor(input.size(1), torch::kInt64);
  TORCH_CHECK(columns.dim() == 0, "a scalar has no dimension");
  const int64_t n = columns.item<int64_t>();
  const float* in = input.data_ptr<float>();
  for (int64_t row = 0; row < input.size(0); ++row) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) sum += in[row * n + i];
    out[row] = torch::tensor(static_cast<float>(sum), input.options());
  }
  return out;
}
"""

extension = load_inline(
    name="row_sum_scalar_tensor_start",
    cpp_sources=SOURCE,
    functions=["row_sum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x)
