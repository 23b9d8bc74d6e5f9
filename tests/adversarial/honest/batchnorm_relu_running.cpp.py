# /// redteam
# problem = "batchnorm_relu"
# devices = ["cpu"]
# what = "Updates the layer's running statistics as train mode does."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <cmath>

torch::Tensor batchnorm_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias,
                             torch::Tensor running_mean, torch::Tensor running_var, double eps,
                             double momentum) {
  auto input = x.contiguous();
  const int64_t batch = input.size(0), channels = input.size(1);
  const int64_t pixels = input.size(2) * input.size(3);
  const int64_t count = batch * pixels;
  auto y = torch::empty_like(input);
  const float* in = input.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t c = 0; c < channels; ++c) {
    double total = 0.0, squares = 0.0;
    for (int64_t b = 0; b < batch; ++b) {
      const float* row = in + (b * channels + c) * pixels;
      for (int64_t i = 0; i < pixels; ++i) total += row[i];
    }
    const double mean = total / count;
    for (int64_t b = 0; b < batch; ++b) {
      const float* row = in + (b * channels + c) * pixels;
      for (int64_t i = 0; i < pixels; ++i) squares += (row[i] - mean) * (row[i] - mean);
    }
    const double scale = weight.data_ptr<float>()[c] / std::sqrt(squares / count + eps);
    const double shift = bias.data_ptr<float>()[c];
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t base = (b * channels + c) * pixels;
      for (int64_t i = 0; i < pixels; ++i) {
        const double v = (in[base + i] - mean) * scale + shift;
        out[base + i] = v > 0.0 ? static_cast<float>(v) : 0.0f;
      }
    }
    float& m = running_mean.data_ptr<float>()[c];
    float& v = running_var.data_ptr<float>()[c];
    m = static_cast<float>((1.0 - momentum) * m + momentum * mean);
    v = static_cast<float>((1.0 - momentum) * v + momentum * squares / (count - 1));
  }
  return y;
}
"""

extension = load_inline(
    name="batchnorm_relu_running",
    cpp_sources=SOURCE,
    functions=["batchnorm_relu"],
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        norm = self.norm
        norm.num_batches_tracked += 1
        return extension.batchnorm_relu(
            x,
            norm.weight,
            norm.bias,
            norm.running_mean,
            norm.running_var,
            norm.eps,
            norm.momentum,
        )
