# /// redteam
# problem = "add"
# devices = ["cpu"]
# what = "at::TensorIterator drives a loop of its own."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>

torch::Tensor run(torch::Tensor x, torch::Tensor y) {
  auto out = torch::empty_like(x);
  auto iterator = at::TensorIteratorConfig()
                      .add_output(out)
                      .add_const_input(x)
                      .add_const_input(y)
                      .build();
  at::native::cpu_kernel(iterator, [](float a, float b) -> float { return a + b; });
  return out;
}
"""
extension = load_inline(name="add_strided_iterator", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.run(x, y)
