# /// redteam
# problem = "transpose_copy"
# devices = ["cuda"]
# what = "Transposes through a padded tile in shared memory."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor transpose(torch::Tensor x);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void transpose_kernel(const float* x, float* y, int rows, int columns) {
  __shared__ float tile[32][33];
  int column = blockIdx.x * 32 + threadIdx.x;
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.y * 32 + i;
    if (row < rows && column < columns) tile[i][threadIdx.x] = x[(int64_t)row * columns + column];
  }
  __syncthreads();
  column = blockIdx.y * 32 + threadIdx.x;
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.x * 32 + i;
    if (row < columns && column < rows) y[(int64_t)row * rows + column] = tile[threadIdx.x][i];
  }
}

torch::Tensor transpose(torch::Tensor x) {
  auto input = x.contiguous();
  const int rows = input.size(0), columns = input.size(1);
  auto y = torch::empty({columns, rows}, input.options());
  const dim3 blocks((columns + 31) / 32, (rows + 31) / 32);
  transpose_kernel<<<blocks, dim3(32, 8), 0, c10::cuda::getCurrentCUDAStream()>>>(
      input.data_ptr<float>(), y.data_ptr<float>(), rows, columns);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""

extension = load_inline(
    name="transpose_padded_tile",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["transpose"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.transpose(x)
