# /// redteam
# problem = "conv2d"
# devices = ["cuda"]
# what = "Copies the weights to constant memory before every launch."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor conv(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t padding);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__constant__ float constant_weight[2048];

__global__ void conv_kernel(const float* x, const float* bias, float* y, int in_c, int out_c,
                            int h, int w, int side, int padding) {
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel >= h * w) return;
  const int image = blockIdx.y / out_c, out = blockIdx.y % out_c;
  const int row = pixel / w - padding, column = pixel % w - padding;
  float total = bias[out];
  for (int c = 0; c < in_c; ++c) {
    const float* in = x + (int64_t)(image * in_c + c) * h * w;
    for (int i = 0; i < side; ++i) {
      for (int j = 0; j < side; ++j) {
        const int r = row + i, q = column + j;
        if (r >= 0 && r < h && q >= 0 && q < w) {
          total += in[r * w + q] * constant_weight[((out * in_c + c) * side + i) * side + j];
        }
      }
    }
  }
  y[(int64_t)blockIdx.y * h * w + pixel] = total;
}

torch::Tensor conv(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t padding) {
  auto input = x.contiguous();
  auto kernel = weight.contiguous();
  TORCH_CHECK(kernel.numel() <= 2048, "too many weights: ", kernel.numel());
  const int batch = input.size(0), in_c = input.size(1), h = input.size(2), w = input.size(3);
  const int out_c = kernel.size(0), side = kernel.size(2);
  auto y = torch::empty({batch, out_c, h, w}, input.options());
  auto stream = c10::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(cudaMemcpyToSymbolAsync(constant_weight, kernel.data_ptr<float>(),
                                         kernel.numel() * sizeof(float), 0,
                                         cudaMemcpyDeviceToDevice, stream));
  const dim3 blocks((h * w + 127) / 128, batch * out_c);
  conv_kernel<<<blocks, 128, 0, stream>>>(input.data_ptr<float>(), bias.data_ptr<float>(),
                                          y.data_ptr<float>(), in_c, out_c, h, w, side,
                                          static_cast<int>(padding));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="conv2d_constant_memory",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["conv"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)

    def forward(self, x):
        return extension.conv(x, self.conv.weight, self.conv.bias, self.conv.padding[0])
