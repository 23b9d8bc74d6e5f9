# /// redteam
# problem = "heavy_matmul"
# devices = ["cuda"]
# what = "Asks for more shared memory than is given by default, and checks that it was granted."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor matmul(torch::Tensor x, torch::Tensor y);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int kSide = 64;
constexpr int kInner = 96;

// 64 x 64 of the product per block of 256 threads, each of which keeps 4 x 4 of it.
__global__ void matmul_kernel(const float* a, const float* b, float* c, int m, int k, int n) {
  extern __shared__ float memory[];
  float* left = memory;
  float* right = memory + kSide * kInner;
  const int thread = threadIdx.x;
  const int ty = thread / 16, tx = thread % 16;
  const int row0 = blockIdx.y * kSide, column0 = blockIdx.x * kSide;
  float total[4][4] = {};
  for (int start = 0; start < k; start += kInner) {
    for (int i = thread; i < kSide * kInner; i += 256) {
      const int r = row0 + i / kInner, l = start + i % kInner;
      left[i] = r < m && l < k ? a[r * k + l] : 0.0f;
      const int lb = start + i / kSide, q = column0 + i % kSide;
      right[i] = lb < k && q < n ? b[lb * n + q] : 0.0f;
    }
    __syncthreads();
    for (int l = 0; l < kInner; ++l) {
      for (int i = 0; i < 4; ++i) {
        const float v = left[(ty * 4 + i) * kInner + l];
        for (int j = 0; j < 4; ++j) total[i][j] += v * right[l * kSide + tx + 16 * j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int r = row0 + ty * 4 + i, q = column0 + tx + 16 * j;
      if (r < m && q < n) c[r * n + q] = total[i][j];
    }
  }
}

torch::Tensor matmul(torch::Tensor x, torch::Tensor y) {
  auto a = x.contiguous();
  auto b = y.contiguous();
  const int m = a.size(0), k = a.size(1), n = b.size(1);
  auto c = torch::empty({m, n}, a.options());
  const int bytes = 2 * kSide * kInner * sizeof(float) + 2048;
  C10_CUDA_CHECK(cudaFuncSetAttribute(
      matmul_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 blocks((n + kSide - 1) / kSide, (m + kSide - 1) / kSide);
  matmul_kernel<<<blocks, 256, bytes, c10::cuda::getCurrentCUDAStream()>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, k, n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return c;
}
"""

extension = load_inline(
    name="heavy_matmul_dynamic_shared",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["matmul"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.matmul(x, y)
