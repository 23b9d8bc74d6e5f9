# /// redteam
# problem = "add"
# devices = ["cpu"]
# style = "torch_ldflags"
# what = "Passes torch's include and library folders on, as setup scripts do."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import include_paths, library_paths, load_inline

SOURCE = r"""
#include <torch/extension.h>

at::Tensor add(const at::Tensor& x, const at::Tensor& y) {
  at::Tensor out = at::empty_like(x);
  const float* a = x.const_data_ptr<float>();
  const float* b = y.const_data_ptr<float>();
  float* o = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = a[i] + b[i];
  return out;
}
"""

extension = load_inline(
    name="add_torch_include_paths",
    cpp_sources=SOURCE,
    functions="add",
    extra_cflags=["-O3", *(f"-I{folder}" for folder in include_paths())],
    extra_ldflags=[f"-L{folder}" for folder in library_paths()] + ["-ltorch", "-lgomp"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.add(x, y)
