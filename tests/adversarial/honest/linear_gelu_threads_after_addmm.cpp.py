# /// redteam
# problem = "linear_gelu"
# devices = ["cpu"]
# style = "thread_beside_torch"
# what = "Leaves the product to torch in the calling thread, and threads do the GELU."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>
#include <thread>

torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  auto out = torch::addmm(bias, x, weight.t()).contiguous();
  float* data = out.data_ptr<float>();
  const int64_t n = out.numel();
  auto gelu = [data](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      data[i] = 0.5f * data[i] * (1.0f + std::erf(data[i] * 0.70710678f));
    }
  };
  std::thread other(gelu, n / 2, n);
  gelu(0, n / 2);
  other.join();
  return out;
}
"""

extension = load_inline(
    name="linear_gelu_threads_after_addmm",
    cpp_sources=SOURCE,
    functions=["linear_gelu"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return extension.linear_gelu(x, self.linear.weight, self.linear.bias)
