# /// redteam
# problem = "add"
# devices = ["cpu"]
# what = "Shares its loop among torch's own threads."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <ATen/Parallel.h>

torch::Tensor add(torch::Tensor x, torch::Tensor y) {
  TORCH_CHECK(x.sizes() == y.sizes(), "shapes differ: ", x.sizes(), " and ", y.sizes());
  auto a = x.contiguous();
  auto b = y.contiguous();
  auto sum = torch::empty_like(a);
  const float* pa = a.data_ptr<float>();
  const float* pb = b.data_ptr<float>();
  float* ps = sum.data_ptr<float>();
  at::parallel_for(0, a.numel(), 32768, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ps[i] = pa[i] + pb[i];
  });
  return sum;
}
"""

extension = load_inline(
    name="add_parallel_for",
    cpp_sources=SOURCE,
    functions=["add"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.add(x, y)
