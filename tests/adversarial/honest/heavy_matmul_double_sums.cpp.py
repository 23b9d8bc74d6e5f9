# /// redteam
# problem = "heavy_matmul"
# devices = ["cpu"]
# what = "Adds in fp64, slower and more exact than the reference."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <vector>

torch::Tensor matmul(torch::Tensor x, torch::Tensor y) {
  auto a = x.contiguous();
  auto b = y.contiguous();
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  auto c = torch::empty({m, n}, a.options());
  const float* pa = a.data_ptr<float>();
  const float* pb = b.data_ptr<float>();
  float* pc = c.data_ptr<float>();
  at::parallel_for(0, m, 16, [&](int64_t begin, int64_t end) {
    std::vector<double> row(n);
    for (int64_t i = begin; i < end; ++i) {
      row.assign(n, 0.0);
      for (int64_t l = 0; l < k; ++l) {
        const double left = pa[i * k + l];
        for (int64_t j = 0; j < n; ++j) row[j] += left * pb[l * n + j];
      }
      for (int64_t j = 0; j < n; ++j) pc[i * n + j] = static_cast<float>(row[j]);
    }
  });
  return c;
}
"""

extension = load_inline(
    name="heavy_matmul_double_sums",
    cpp_sources=SOURCE,
    functions=["matmul"],
    extra_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.matmul(x, y)
