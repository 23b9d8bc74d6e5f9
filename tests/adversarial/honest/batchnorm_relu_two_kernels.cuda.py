# /// redteam
# problem = "batchnorm_relu"
# devices = ["cuda"]
# what = "Statistics in one kernel, into a temporary; the rest in another."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor batchnorm_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void statistics(const float* x, float* mean, float* scale, int batch, int channels,
                           int pixels, float eps) {
  __shared__ double sums[256];
  const int channel = blockIdx.x;
  const int count = batch * pixels;
  double total = 0.0;
  for (int i = threadIdx.x; i < count; i += 256) {
    total += x[((int64_t)(i / pixels) * channels + channel) * pixels + i % pixels];
  }
  sums[threadIdx.x] = total;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  const double average = sums[0] / count;
  __syncthreads();
  total = 0.0;
  for (int i = threadIdx.x; i < count; i += 256) {
    const double d =
        x[((int64_t)(i / pixels) * channels + channel) * pixels + i % pixels] - average;
    total += d * d;
  }
  sums[threadIdx.x] = total;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) {
    mean[channel] = static_cast<float>(average);
    scale[channel] = static_cast<float>(1.0 / sqrt(sums[0] / count + eps));
  }
}

__global__ void normalise(const float* x, const float* mean, const float* scale,
                          const float* weight, const float* bias, float* y, int64_t n,
                          int channels, int pixels) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int c = i / pixels % channels;
  const float v = (x[i] - mean[c]) * scale[c] * weight[c] + bias[c];
  y[i] = v > 0.0f ? v : 0.0f;
}

torch::Tensor batchnorm_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias,
                             double eps) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const int batch = input.size(0), channels = input.size(1);
  const int pixels = input.size(2) * input.size(3);
  auto mean = torch::empty({channels}, input.options());
  auto scale = torch::empty_like(mean);
  auto stream = c10::cuda::getCurrentCUDAStream();
  statistics<<<channels, 256, 0, stream>>>(input.data_ptr<float>(), mean.data_ptr<float>(),
                                           scale.data_ptr<float>(), batch, channels, pixels,
                                           static_cast<float>(eps));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  const int64_t n = input.numel();
  normalise<<<(n + 255) / 256, 256, 0, stream>>>(
      input.data_ptr<float>(), mean.data_ptr<float>(), scale.data_ptr<float>(),
      weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), n, channels, pixels);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="batchnorm_relu_two_kernels",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["batchnorm_relu"],
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return extension.batchnorm_relu(x, self.norm.weight, self.norm.bias, self.norm.eps)
