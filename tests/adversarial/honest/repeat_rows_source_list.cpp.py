# /// redteam
# problem = "repeat_rows"
# devices = ["cpu"]
# style = "own_module"
# what = "A list of two sources: declarations in one, the definition in the other."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor repeat_rows(torch::Tensor x, int64_t times);
"""

DEFINITION = r"""
#include <cstring>

torch::Tensor repeat_rows(torch::Tensor x, int64_t times) {
  auto row = x.contiguous();
  const int64_t n = row.numel();
  auto out = torch::empty({times * row.size(0), row.size(1)}, row.options());
  for (int64_t i = 0; i < times; ++i) {
    std::memcpy(out.data_ptr<float>() + i * n, row.data_ptr<float>(), n * sizeof(float));
  }
  return out;
}
"""

extension = load_inline(
    name="repeat_rows_source_list",
    cpp_sources=[SOURCE, DEFINITION],
    functions={"repeat_rows": "Write one row many times."},
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.repeat_rows(x, 4096)
