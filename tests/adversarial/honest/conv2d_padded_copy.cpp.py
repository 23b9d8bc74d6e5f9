# /// redteam
# problem = "conv2d"
# devices = ["cpu"]
# what = "Pads into a copy of its own, then convolves."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <algorithm>
#include <vector>

torch::Tensor conv(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t padding) {
  auto input = x.contiguous();
  auto kernel = weight.contiguous();
  const int64_t batch = input.size(0), in_c = input.size(1);
  const int64_t h = input.size(2), w = input.size(3);
  const int64_t out_c = kernel.size(0), side = kernel.size(2);
  const int64_t ph = h + 2 * padding, pw = w + 2 * padding;
  auto y = torch::empty({batch, out_c, h, w}, input.options());
  std::vector<float> padded(in_c * ph * pw);
  for (int64_t image = 0; image < batch; ++image) {
    std::fill(padded.begin(), padded.end(), 0.0f);
    for (int64_t c = 0; c < in_c; ++c) {
      for (int64_t r = 0; r < h; ++r) {
        const float* from = input.data_ptr<float>() + ((image * in_c + c) * h + r) * w;
        std::copy(from, from + w, padded.begin() + (c * ph + r + padding) * pw + padding);
      }
    }
    for (int64_t o = 0; o < out_c; ++o) {
      float* out = y.data_ptr<float>() + (image * out_c + o) * h * w;
      std::fill(out, out + h * w, bias.data_ptr<float>()[o]);
      for (int64_t c = 0; c < in_c; ++c) {
        for (int64_t i = 0; i < side; ++i) {
          for (int64_t j = 0; j < side; ++j) {
            const float k = kernel.data_ptr<float>()[((o * in_c + c) * side + i) * side + j];
            for (int64_t r = 0; r < h; ++r) {
              const float* in = padded.data() + (c * ph + r + i) * pw + j;
              for (int64_t q = 0; q < w; ++q) out[r * w + q] += k * in[q];
            }
          }
        }
      }
    }
  }
  return y;
}
"""

extension = load_inline(
    name="conv2d_padded_copy",
    cpp_sources=SOURCE,
    functions=["conv"],
    extra_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)

    def forward(self, x):
        return extension.conv(x, self.conv.weight, self.conv.bias, self.conv.padding[0])
