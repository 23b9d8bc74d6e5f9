# /// redteam
# problem = "column_sum"
# devices = ["cuda"]
# what = "Adds up columns of strips by atomic additions to an output that it clears first."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void column_kernel(const float4* x, float* out, int rows, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * column >= columns) return;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int row = blockIdx.y; row < rows; row += gridDim.y) {
    const float4 value = x[(long)row * (columns / 4) + column];
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
  }
  atomicAdd(out + 4 * column, sum.x);
  atomicAdd(out + 4 * column + 1, sum.y);
  atomicAdd(out + 4 * column + 2, sum.z);
  atomicAdd(out + 4 * column + 3, sum.w);
}

torch::Tensor column_sum(torch::Tensor x) {
  auto input = x.contiguous();
  const int rows = input.size(0), columns = input.size(1);
  auto out = torch::empty({columns}, input.options());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(cudaMemsetAsync(out.data_ptr<float>(), 0, out.nbytes(), stream));
  const dim3 grid((columns / 4 + 127) / 128, 128);
  column_kernel<<<grid, 128, 0, stream>>>(
      reinterpret_cast<const float4*>(input.data_ptr<float>()), out.data_ptr<float>(), rows,
      columns);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""
extension = load_inline(
    name="column_sum_atomics",
    cpp_sources="torch::Tensor column_sum(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["column_sum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.column_sum(x)
