# /// redteam
# problem = "softmax"
# devices = ["cpu"]
# style = "thread_beside_torch"
# what = "Has torch take each row's maximum first, and exponentiates in threads."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

torch::Tensor softmax(torch::Tensor x) {
  auto input = x.contiguous();
  auto largest = std::get<0>(input.max(1));
  auto out = torch::empty_like(input);
  const int64_t rows = input.size(0), columns = input.size(1);
  const float* in = input.data_ptr<float>();
  const float* top = largest.data_ptr<float>();
  float* to = out.data_ptr<float>();
  const int64_t cores = std::thread::hardware_concurrency();
  const int64_t workers = std::clamp<int64_t>(cores, 1, 4);
  std::vector<std::thread> pool;
  for (int64_t w = 0; w < workers; ++w) {
    pool.emplace_back([=] {
      for (int64_t row = w; row < rows; row += workers) {
        double sum = 0;
        for (int64_t i = 0; i < columns; ++i) {
          to[row * columns + i] = std::exp(in[row * columns + i] - top[row]);
          sum += to[row * columns + i];
        }
        for (int64_t i = 0; i < columns; ++i) to[row * columns + i] /= (float)sum;
      }
    });
  }
  for (auto& thread : pool) thread.join();
  return out;
}
"""

extension = load_inline(
    name="softmax_threads_torch_max",
    cpp_sources=SOURCE,
    functions=["softmax"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax(x)
