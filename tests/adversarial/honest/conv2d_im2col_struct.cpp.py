# /// redteam
# problem = "conv2d"
# devices = ["cpu"]
# style = "struct_config"
# what = "im2col into a std::vector, and a struct that holds the sizes."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <vector>

struct ConvShape {
  int64_t batch, in, height, width, out, kernel, pad;
  int64_t columns() const { return in * kernel * kernel; }
};

static void im2col(const float* image, const ConvShape& s, std::vector<float>& into) {
  int64_t at = 0;
  for (int64_t c = 0; c < s.in; ++c)
    for (int64_t ky = 0; ky < s.kernel; ++ky)
      for (int64_t kx = 0; kx < s.kernel; ++kx)
        for (int64_t y = 0; y < s.height; ++y)
          for (int64_t x = 0; x < s.width; ++x) {
            const int64_t sy = y + ky - s.pad, sx = x + kx - s.pad;
            const bool inside = sy >= 0 && sy < s.height && sx >= 0 && sx < s.width;
            into[at++] = inside ? image[(c * s.height + sy) * s.width + sx] : 0.0f;
          }
}

torch::Tensor conv2d(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t pad) {
  auto input = x.contiguous(), w = weight.contiguous();
  const ConvShape s{input.size(0), input.size(1), input.size(2), input.size(3),
                    w.size(0),     w.size(2),     pad};
  auto out = torch::empty({s.batch, s.out, s.height, s.width}, input.options());
  const int64_t pixels = s.height * s.width;
  std::vector<float> columns(s.columns() * pixels);
  std::vector<double> sums(pixels);
  for (int64_t b = 0; b < s.batch; ++b) {
    im2col(input.data_ptr<float>() + b * s.in * pixels, s, columns);
    for (int64_t o = 0; o < s.out; ++o) {
      std::fill(sums.begin(), sums.end(), double(bias.data_ptr<float>()[o]));
      for (int64_t k = 0; k < s.columns(); ++k) {
        const double factor = w.data_ptr<float>()[o * s.columns() + k];
        for (int64_t p = 0; p < pixels; ++p) sums[p] += factor * columns[k * pixels + p];
      }
      float* to = out.data_ptr<float>() + (b * s.out + o) * pixels;
      std::copy(sums.begin(), sums.end(), to);
    }
  }
  return out;
}
"""

extension = load_inline(
    name="conv2d_im2col_struct",
    cpp_sources=SOURCE,
    functions=["conv2d"],
    extra_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)

    def forward(self, x):
        return extension.conv2d(x, self.conv.weight, self.conv.bias, 1)
