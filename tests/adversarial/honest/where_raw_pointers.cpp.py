# /// redteam
# problem = "where"
# devices = ["cpu"]
# style = "raw_pointers"
# what = "Walks four raw pointers to the end of the mask."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

torch::Tensor choose(torch::Tensor mask, torch::Tensor x, torch::Tensor y) {
  mask = mask.contiguous();
  x = x.contiguous();
  y = y.contiguous();
  auto out = torch::empty_like(x);
  const bool* m = mask.data_ptr<bool>();
  const bool* end = m + mask.numel();
  const float *a = x.data_ptr<float>(), *b = y.data_ptr<float>();
  float* o = out.data_ptr<float>();
  while (m != end) {
    *o++ = *m++ ? *a : *b;
    ++a, ++b;
  }
  return out;
}
"""

extension = load_inline(
    name="where_raw_pointers",
    cpp_sources=SOURCE,
    functions=["choose"],
)


class ModelNew(nn.Module):
    def forward(self, mask, x, y):
        return extension.choose(mask, x, y)
