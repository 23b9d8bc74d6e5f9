# /// redteam
# problem = "cumsum"
# devices = ["cpu"]
# style = "online_algorithms"
# what = "Scans blocks, then the blocks' sums, then adds them."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <vector>

constexpr int64_t BLOCK = 64;

torch::Tensor cumsum(torch::Tensor x) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const int64_t n = in.size(1), blocks = (n + BLOCK - 1) / BLOCK;
  std::vector<double> part(n), carry(blocks + 1);
  for (int64_t row = 0; row < in.size(0); ++row) {
    const float* p = in.data_ptr<float>() + row * n;
    for (int64_t b = 0; b < blocks; ++b) {
      double sum = 0;
      for (int64_t i = b * BLOCK; i < std::min(n, (b + 1) * BLOCK); ++i) part[i] = sum += p[i];
      carry[b + 1] = sum;
    }
    for (int64_t b = 0; b < blocks; ++b) carry[b + 1] += carry[b];
    float* o = out.data_ptr<float>() + row * n;
    for (int64_t i = 0; i < n; ++i) o[i] = part[i] + carry[i / BLOCK];
  }
  return out;
}
"""

extension = load_inline(
    name="cumsum_blocked_scan",
    cpp_sources=SOURCE,
    functions=["cumsum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.cumsum(x)
