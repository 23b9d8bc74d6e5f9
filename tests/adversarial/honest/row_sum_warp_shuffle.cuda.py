# /// redteam
# problem = "row_sum"
# devices = ["cuda"]
# what = "Reduces each row in one warp, by shuffles."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor row_sum(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void row_sum_kernel(const float* in, float* out, int rows, int columns) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  float total = 0.0f;
  for (int i = lane; i < columns; i += 32) total += in[(int64_t)row * columns + i];
  for (int step = 16; step > 0; step /= 2) total += __shfl_down_sync(0xffffffffu, total, step);
  if (lane == 0) out[row] = total;
}

torch::Tensor row_sum(torch::Tensor x) {
  auto input = x.contiguous();
  const int rows = input.size(0), columns = input.size(1);
  auto y = torch::empty({rows}, input.options());
  row_sum_kernel<<<(rows * 32 + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.data_ptr<float>(), y.data_ptr<float>(), rows, columns);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="row_sum_warp_shuffle",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["row_sum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x)
