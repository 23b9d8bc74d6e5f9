# /// redteam
# problem = "argmax"
# devices = ["cpu"]
# style = "tensor_scalar"
# what = "Collects its indices in a std::vector and hands it to torch::tensor."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <vector>

torch::Tensor argmax_rows(torch::Tensor x) {
  auto input = x.contiguous();
  const int64_t rows = input.size(0), columns = input.size(1);
  const float* in = input.data_ptr<float>();
  std::vector<int64_t> best(rows, 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 1; i < columns; ++i) {
      if (in[row * columns + i] > in[row * columns + best[row]]) best[row] = i;
    }
  }
  auto shape = torch::tensor({rows, columns});
  TORCH_CHECK(shape.dtype() == torch::kInt64 && shape.numel() == 2, "a list keeps int64");
  return torch::tensor(best, torch::dtype(torch::kInt64));
}
"""

extension = load_inline(
    name="argmax_braced_tensor",
    cpp_sources=SOURCE,
    functions=["argmax_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.argmax_rows(x)
