# /// redteam
# problem = "add"
# devices = ["cpu"]
# what = "Registers an operator with an output argument, and one that returns a list."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <torch/library.h>

at::Tensor& add_out(const at::Tensor& x, const at::Tensor& y, at::Tensor& out) {
  auto a = x.contiguous(), b = y.contiguous();
  for (int64_t i = 0; i < a.numel(); ++i)
    out.data_ptr<float>()[i] = a.data_ptr<float>()[i] + b.data_ptr<float>()[i];
  return out;
}

std::vector<at::Tensor> halves(const at::Tensor& x) {
  auto parts = x.chunk(2);
  return {parts[0].contiguous(), parts[1].contiguous()};
}

TORCH_LIBRARY(add_out_of_place, library) {
  library.def("add(Tensor x, Tensor y, *, Tensor(a!) out) -> Tensor(a!)", &add_out);
  library.def("halves(Tensor x) -> Tensor[]", &halves);
}
"""

load_inline(name="add_out_of_place", cpp_sources=SOURCE, is_python_module=False)
ops = torch.ops.add_out_of_place


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        for a, b, c in zip(ops.halves(x), ops.halves(y), out.chunk(2), strict=True):
            ops.add(a, b, out=c)
        return out
