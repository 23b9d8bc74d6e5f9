# /// redteam
# problem = "heavy_matmul"
# devices = ["cpu"]
# style = "parallel_for_grain"
# what = "A blocked product whose blocks of rows are shared among threads."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <vector>

constexpr int64_t TILE_K = 64;
constexpr int64_t TILE_N = 128;

torch::Tensor matmul(torch::Tensor a, torch::Tensor b) {
  TORCH_CHECK(a.size(1) == b.size(0), "inner sizes differ: ", a.size(1), " and ", b.size(0));
  auto x = a.contiguous(), y = b.contiguous();
  const int64_t M = x.size(0), K = x.size(1), N = y.size(1);
  auto out = torch::zeros({M, N}, x.options());
  const float* px = x.data_ptr<float>();
  const float* py = y.data_ptr<float>();
  float* po = out.data_ptr<float>();
  at::parallel_for(0, M, 8, [&](int64_t begin, int64_t end) {
    for (int64_t k0 = 0; k0 < K; k0 += TILE_K) {
      const int64_t k1 = std::min(K, k0 + TILE_K);
      for (int64_t n0 = 0; n0 < N; n0 += TILE_N) {
        const int64_t n1 = std::min(N, n0 + TILE_N);
        for (int64_t m = begin; m < end; ++m) {
          float part[TILE_N] = {};
          for (int64_t k = k0; k < k1; ++k) {
            const float left = px[m * K + k];
            for (int64_t n = n0; n < n1; ++n) part[n - n0] += left * py[k * N + n];
          }
          for (int64_t n = n0; n < n1; ++n) po[m * N + n] += part[n - n0];
        }
      }
    }
  });
  return out;
}
"""

extension = load_inline(
    name="heavy_matmul_blocked_parallel",
    cpp_sources=SOURCE,
    functions=["matmul"],
    extra_cflags=["-O3", "-march=native", "-ffast-math"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.matmul(x, y)
