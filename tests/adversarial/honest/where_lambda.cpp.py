# /// redteam
# problem = "where"
# devices = ["cpu"]
# what = "Reads booleans in a generic lambda."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

torch::Tensor choose(torch::Tensor mask, torch::Tensor x, torch::Tensor y) {
  auto m = mask.contiguous();
  auto a = x.contiguous();
  auto b = y.contiguous();
  auto out = torch::empty_like(a);
  auto pick = [](bool first, auto left, auto right) { return first ? left : right; };
  for (int64_t i = 0; i < a.numel(); ++i) {
    out.data_ptr<float>()[i] =
        pick(m.data_ptr<bool>()[i], a.data_ptr<float>()[i], b.data_ptr<float>()[i]);
  }
  return out;
}
"""

extension = load_inline(
    name="where_lambda",
    cpp_sources=SOURCE,
    functions=["choose"],
)


class ModelNew(nn.Module):
    def forward(self, mask, x, y):
        return extension.choose(mask, x, y)
