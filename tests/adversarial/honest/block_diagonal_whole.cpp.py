# /// redteam
# problem = "block_diagonal"
# devices = ["cpu"]
# what = "Multiplies by the whole weight, and passes over values of the weight that are zero now."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <vector>

torch::Tensor product(torch::Tensor x, torch::Tensor w) {
  auto out = torch::empty_like(x);
  const int64_t rows = x.size(0), width = x.size(1);
  const float *in = x.data_ptr<float>(), *weight = w.data_ptr<float>();
  float* to = out.data_ptr<float>();
  std::vector<double> sums(rows * width, 0.0);
  for (int64_t k = 0; k < width; ++k)
    for (int64_t j = 0; j < width; ++j) {
      const float value = weight[k * width + j];
      if (value == 0.0f) continue;
      for (int64_t i = 0; i < rows; ++i)
        sums[i * width + j] += static_cast<double>(in[i * width + k]) * value;
    }
  for (int64_t n = 0; n < rows * width; ++n) to[n] = static_cast<float>(sums[n]);
  return out;
}
"""
extension = load_inline(
    name="whole_ext", cpp_sources=SOURCE, functions=["product"], extra_cflags=["-O3"]
)


class ModelNew(nn.Module):
    def __init__(self, features, blocks):
        super().__init__()
        self.weight = nn.Parameter(torch.block_diag(*torch.randn(blocks, features, features)))

    def forward(self, x):
        return extension.product(x.contiguous(), self.weight)
