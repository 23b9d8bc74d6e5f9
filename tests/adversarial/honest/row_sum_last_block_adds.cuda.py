# /// redteam
# problem = "row_sum"
# devices = ["cuda"]
# what = "Four blocks share a row; the last one adds their parts and sets a kept counter back."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void sum_kernel(const float* x, float* out, float* parts, unsigned int* counters,
                           int columns) {
  __shared__ float sums[8];
  const int row = blockIdx.x, share = columns / 4;
  const float* in = x + (long)row * columns + blockIdx.y * share;
  float total = 0.0f;
  for (int i = threadIdx.x; i < share; i += 256) total += in[i];
  for (int s = 16; s > 0; s /= 2) total += __shfl_xor_sync(0xffffffffu, total, s);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x) return;
  total = 0.0f;
  for (int i = 0; i < 8; ++i) total += sums[i];
  parts[row * 4 + blockIdx.y] = total;
  __threadfence();
  if (atomicAdd(&counters[row], 1) < 3) return;
  const volatile float* all = parts + row * 4;
  out[row] = all[0] + all[1] + all[2] + all[3];
  counters[row] = 0;
}

torch::Tensor row_sum(torch::Tensor x) {
  static float* parts = nullptr;
  static unsigned int* counters = nullptr;
  const int rows = x.size(0);
  if (!parts) {
    C10_CUDA_CHECK(cudaMalloc(&parts, 4 * rows * sizeof(float)));
    C10_CUDA_CHECK(cudaMalloc(&counters, rows * sizeof(unsigned int)));
    C10_CUDA_CHECK(cudaMemset(counters, 0, rows * sizeof(unsigned int)));
  }
  auto out = torch::empty({rows}, x.options());
  sum_kernel<<<dim3(rows, 4), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), parts, counters, x.size(1));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""
extension = load_inline(
    name="last_block_ext",
    cpp_sources="torch::Tensor row_sum(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["row_sum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x.contiguous())
