# /// redteam
# problem = "l2norm"
# devices = ["cpu"]
# style = "own_module"
# what = "Binds itself with PYBIND11_MODULE, keyword arguments and defaults."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor normalise(torch::Tensor x, double floor) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const int64_t n = in.size(1);
  for (int64_t row = 0; row < in.size(0); ++row) {
    double square = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double v = in.data_ptr<float>()[row * n + i];
      square += v * v;
    }
    const double length = std::max(std::sqrt(square), floor);
    for (int64_t i = 0; i < n; ++i) {
      out.data_ptr<float>()[row * n + i] = in.data_ptr<float>()[row * n + i] / length;
    }
  }
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("normalise", &normalise, "rows of length one", py::arg("x"), py::arg("floor") = 0.0);
}
"""

extension = load_inline(
    name="l2norm_pybind_module",
    cpp_sources=SOURCE,
    extra_cflags=["-O2"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.normalise(x=x)
