# /// redteam
# problem = "matmul"
# devices = ["cpu"]
# style = "vector_scratch"
# what = "Packs a panel of the right matrix into scratch, and sums in double."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <memory>
#include <vector>

torch::Tensor matmul(torch::Tensor a, torch::Tensor b) {
  auto x = a.contiguous(), y = b.contiguous();
  const int64_t M = x.size(0), K = x.size(1), N = y.size(1);
  constexpr int64_t PANEL = 16;
  auto out = torch::empty({M, N}, x.options());
  auto panel = std::make_unique<double[]>(K * PANEL);
  for (int64_t n0 = 0; n0 < N; n0 += PANEL) {
    const int64_t width = std::min(PANEL, N - n0);
    for (int64_t k = 0; k < K; ++k)
      for (int64_t n = 0; n < width; ++n)
        panel[k * PANEL + n] = y.data_ptr<float>()[k * N + n0 + n];
    for (int64_t m = 0; m < M; ++m) {
      double sums[PANEL] = {0};
      const float* row = x.data_ptr<float>() + m * K;
      for (int64_t k = 0; k < K; ++k)
        for (int64_t n = 0; n < width; ++n) sums[n] += row[k] * panel[k * PANEL + n];
      for (int64_t n = 0; n < width; ++n) out.data_ptr<float>()[m * N + n0 + n] = sums[n];
    }
  }
  return out;
}
"""

extension = load_inline(
    name="matmul_packed_panel",
    cpp_sources=SOURCE,
    functions=["matmul"],
    extra_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.matmul(x, y)
