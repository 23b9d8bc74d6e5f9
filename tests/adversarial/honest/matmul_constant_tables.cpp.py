# /// redteam
# problem = "matmul"
# devices = ["cpu"]
# what = "Tiles whose sizes stand in a static table, and checks its arguments."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <algorithm>
#include <vector>

static constexpr int64_t kTiles[3] = {32, 64, 128};

torch::Tensor matmul(torch::Tensor x, torch::Tensor y) {
  TORCH_CHECK(x.dim() == 2 && y.dim() == 2, "two matrices are needed");
  TORCH_CHECK(x.size(1) == y.size(0), "inner sizes differ");
  auto a = x.contiguous();
  auto b = y.contiguous();
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  auto c = torch::zeros({m, n}, a.options());
  const float* pa = a.data_ptr<float>();
  const float* pb = b.data_ptr<float>();
  float* pc = c.data_ptr<float>();
  for (int64_t i0 = 0; i0 < m; i0 += kTiles[0]) {
    for (int64_t k0 = 0; k0 < k; k0 += kTiles[1]) {
      for (int64_t j0 = 0; j0 < n; j0 += kTiles[2]) {
        const int64_t i1 = std::min(m, i0 + kTiles[0]);
        const int64_t k1 = std::min(k, k0 + kTiles[1]);
        const int64_t j1 = std::min(n, j0 + kTiles[2]);
        for (int64_t i = i0; i < i1; ++i) {
          for (int64_t l = k0; l < k1; ++l) {
            const float left = pa[i * k + l];
            for (int64_t j = j0; j < j1; ++j) pc[i * n + j] += left * pb[l * n + j];
          }
        }
      }
    }
  }
  return c;
}
"""

extension = load_inline(
    name="matmul_constant_tables",
    cpp_sources=SOURCE,
    functions=["matmul"],
    extra_cflags=["-O3", "-march=native"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.matmul(x, y)
