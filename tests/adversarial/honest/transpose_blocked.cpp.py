# /// redteam
# problem = "transpose_copy"
# devices = ["cpu"]
# what = "Transposes in blocks, after a try that only names the error."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <algorithm>

torch::Tensor transpose(torch::Tensor x) {
  auto input = x.contiguous();
  const int64_t rows = input.size(0), columns = input.size(1), side = 16;
  auto y = torch::empty({columns, rows}, input.options());
  const float* in = input.data_ptr<float>();
  float* out = y.data_ptr<float>();
  try {
    for (int64_t i0 = 0; i0 < rows; i0 += side) {
      for (int64_t j0 = 0; j0 < columns; j0 += side) {
        for (int64_t i = i0; i < std::min(rows, i0 + side); ++i) {
          for (int64_t j = j0; j < std::min(columns, j0 + side); ++j) {
            out[j * rows + i] = in[i * columns + j];
          }
        }
      }
    }
  } catch (const std::exception& error) {
    TORCH_CHECK(false, "transpose failed: ", error.what());
  }
  return y;
}
"""

extension = load_inline(
    name="transpose_blocked",
    cpp_sources=SOURCE,
    functions=["transpose"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.transpose(x)
