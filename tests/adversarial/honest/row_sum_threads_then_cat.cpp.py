# /// redteam
# problem = "row_sum"
# devices = ["cpu"]
# style = "thread_beside_torch"
# what = "Sums in std::threads, and has torch join the parts in the calling thread."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <thread>
#include <vector>

torch::Tensor row_sum(torch::Tensor x) {
  auto input = x.contiguous();
  const int64_t rows = input.size(0), columns = input.size(1), half = rows / 2;
  auto top = torch::empty({half}, input.options());
  auto bottom = torch::empty({rows - half}, input.options());
  auto work = [&](int64_t first, int64_t last, float* out) {
    const float* in = input.data_ptr<float>();
    for (int64_t row = first; row < last; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < columns; ++i) sum += in[row * columns + i];
      out[row - first] = (float)sum;
    }
  };
  std::thread first(work, 0, half, top.data_ptr<float>());
  std::thread second(work, half, rows, bottom.data_ptr<float>());
  first.join();
  second.join();
  return torch::cat({top, bottom});
}
"""

extension = load_inline(
    name="row_sum_threads_then_cat",
    cpp_sources=SOURCE,
    functions=["row_sum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x)
