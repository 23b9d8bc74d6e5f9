# /// redteam
# problem = "conv2d"
# devices = ["cpu"]
# what = "pads by a slice of zeros, adds up in double, takes an optional bias"
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <vector>
torch::Tensor convolve(const torch::Tensor& x, const torch::Tensor& w, 
                       const c10::optional<torch::Tensor>& bias, int64_t pad) {
  TORCH_CHECK(x.dim() == 4, "four axes expected");
  auto padded = torch::zeros(
      {x.size(0), x.size(1), x.size(2) + 2 * pad, x.size(3) + 2 * pad}, x.options());
  padded.slice(2, pad, pad + x.size(2)).slice(3, pad, pad + x.size(3)).copy_(x);
  const int64_t B = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
  const int64_t O = w.size(0), K = w.size(2);
  auto out = torch::empty({B, O, H, W}, x.options());
  auto in = padded.accessor<float, 4>(), filter = w.accessor<float, 4>();
  auto to = out.accessor<float, 4>();
  at::parallel_for(0, B, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> row(W);
    for (int64_t b = begin; b < end; ++b)
      for (int64_t o = 0; o < O; ++o)
        for (int64_t i = 0; i < H; ++i) {
          std::fill(row.begin(), row.end(), bias ? bias->data_ptr<float>()[o] : 0.0);
          for (int64_t c = 0; c < C; ++c)
            for (int64_t p = 0; p < K; ++p)
              for (int64_t q = 0; q < K; ++q)
                for (int64_t j = 0; j < W; ++j)
                  row[j] += in[b][c][i + p][j + q] * filter[o][c][p][q];
          for (int64_t j = 0; j < W; ++j) to[b][o][i][j] = row[j];
        }
  });
  return out;
}
"""
extension = load_inline(name="convolve_ext", cpp_sources=SOURCE, functions=["convolve"])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)

    def forward(self, x):
        return extension.convolve(x, self.conv.weight, self.conv.bias, self.conv.padding[0])
