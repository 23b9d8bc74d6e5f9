# /// redteam
# problem = "add"
# devices = ["cpu"]
# what = "Starts threads of its own, and joins them before it returns."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <thread>
#include <vector>

torch::Tensor add(torch::Tensor x, torch::Tensor y) {
  auto a = x.contiguous();
  auto b = y.contiguous();
  auto out = torch::empty_like(a);
  const float* pa = a.data_ptr<float>();
  const float* pb = b.data_ptr<float>();
  float* po = out.data_ptr<float>();
  const int64_t n = a.numel();
  std::vector<std::thread> threads;
  for (int64_t part = 0; part < 2; ++part) {
    threads.emplace_back([=] {
      for (int64_t i = part * n / 2; i < (part + 1) * n / 2; ++i) po[i] = pa[i] + pb[i];
    });
  }
  for (auto& thread : threads) thread.join();
  return out;
}
"""

extension = load_inline(
    name="add_joined_threads",
    cpp_sources=SOURCE,
    functions=["add"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.add(x, y)
