# /// redteam
# problem = "batchnorm_relu"
# devices = ["cpu"]
# style = "online_algorithms"
# what = "Welford's statistics for each channel, and the running ones updated in C++."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor batch_norm_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias,
                              torch::Tensor running_mean, torch::Tensor running_var,
                              double momentum, double eps) {
  auto in = x.contiguous();
  auto out = torch::empty_like(in);
  const int64_t batch = in.size(0), channels = in.size(1), pixels = in.size(2) * in.size(3);
  const int64_t count = batch * pixels;
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0.0, m2 = 0.0;
    int64_t seen = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const float* p = in.data_ptr<float>() + (b * channels + c) * pixels;
      for (int64_t i = 0; i < pixels; ++i) {
        const double delta = p[i] - mean;
        mean += delta / ++seen;
        m2 += delta * (p[i] - mean);
      }
    }
    float& kept_mean = running_mean.data_ptr<float>()[c];
    float& kept_var = running_var.data_ptr<float>()[c];
    kept_mean = (1 - momentum) * kept_mean + momentum * mean;
    kept_var = (1 - momentum) * kept_var + momentum * m2 / (count - 1);
    const double scale = weight.data_ptr<float>()[c] / std::sqrt(m2 / count + eps);
    const double shift = bias.data_ptr<float>()[c];
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t start = (b * channels + c) * pixels;
      for (int64_t i = 0; i < pixels; ++i) {
        const double v = (in.data_ptr<float>()[start + i] - mean) * scale + shift;
        out.data_ptr<float>()[start + i] = v > 0 ? (float)v : 0.0f;
      }
    }
  }
  return out;
}
"""

extension = load_inline(
    name="batchnorm_relu_welford",
    cpp_sources=SOURCE,
    functions=["batch_norm_relu"],
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        norm = self.norm
        norm.num_batches_tracked.add_(1)
        return extension.batch_norm_relu(
            x,
            norm.weight,
            norm.bias,
            norm.running_mean,
            norm.running_var,
            norm.momentum,
            norm.eps,
        )
