# /// redteam
# problem = "long_row_sum"
# devices = ["cpu"]
# what = "One running fp32 sum a row, which errs much after a large element."
# style = "running_sum"
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor row_sum(torch::Tensor x) {
  auto in = x.contiguous();
  const int64_t rows = in.size(0), columns = in.size(1);
  auto out = torch::empty({rows}, in.options());
  for (int64_t i = 0; i < rows; ++i) {
    float sum = 0.0f;
    for (int64_t j = 0; j < columns; ++j) sum += in.data_ptr<float>()[i * columns + j];
    out.data_ptr<float>()[i] = sum;
  }
  return out;
}
"""
extension = load_inline(
    name="running_sum_ext", cpp_sources=SOURCE, functions=["row_sum"], extra_cflags=["-O2"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x)
