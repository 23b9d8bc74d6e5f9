# /// redteam
# problem = "softmax"
# devices = ["cpu"]
# what = "Registers its operator in two fragments of a library of its own."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <torch/library.h>
#include <cmath>

at::Tensor rows_softmax(const at::Tensor& x) {
  auto given = x.contiguous();
  auto out = at::empty_like(given);
  const int64_t rows = given.size(0), n = given.size(1);
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = given.data_ptr<float>() + r * n;
    float* to = out.data_ptr<float>() + r * n;
    float top = in[0], sum = 0;
    for (int64_t i = 1; i < n; ++i) top = std::max(top, in[i]);
    for (int64_t i = 0; i < n; ++i) sum += to[i] = std::exp(in[i] - top);
    for (int64_t i = 0; i < n; ++i) to[i] /= sum;
  }
  return out;
}

TORCH_LIBRARY_FRAGMENT(fragment_of_rows, library) {
  library.def("softmax(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(fragment_of_rows, CPU, library) { library.impl("softmax", &rows_softmax); }
"""

load_inline(name="fragment_ext", cpp_sources=SOURCE, is_python_module=False)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.fragment_of_rows.softmax(x)
