# /// redteam
# problem = "cumsum"
# devices = ["cuda"]
# what = "Scans each row in one warp, with a carry."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor cumsum_rows(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void cumsum_kernel(const float* x, float* y, int rows, int columns) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  float carry = 0.0f;
  for (int start = 0; start < columns; start += 32) {
    const int i = start + lane;
    float value = i < columns ? x[(int64_t)row * columns + i] : 0.0f;
    for (int step = 1; step < 32; step *= 2) {
      const float left = __shfl_up_sync(0xffffffffu, value, step);
      if (lane >= step) value += left;
    }
    if (i < columns) y[(int64_t)row * columns + i] = value + carry;
    carry += __shfl_sync(0xffffffffu, value, 31);
  }
}

torch::Tensor cumsum_rows(torch::Tensor x) {
  auto input = x.contiguous();
  auto y = torch::empty_like(input);
  const int rows = input.size(0), columns = input.size(1);
  cumsum_kernel<<<(rows * 32 + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.data_ptr<float>(), y.data_ptr<float>(), rows, columns);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="cumsum_warp_scan",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["cumsum_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.cumsum_rows(x)
