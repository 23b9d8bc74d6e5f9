# /// redteam
# problem = "fp16_matmul"
# devices = ["cuda"]
# what = "Multiplies fp16 fragments of wmma, and adds them up in fp32."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

__global__ void product_kernel(const half* x, const half* y, half* out, int n, int k) {
  __shared__ float sums[4][256];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.y * 16, column = (blockIdx.x * 4 + warp) * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> total;
  wmma::fill_fragment(total, 0.0f);
  for (int at = 0; at < k; at += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
    wmma::load_matrix_sync(left, x + (long)row * k + at, k);
    wmma::load_matrix_sync(right, y + (long)column * k + at, k);
    wmma::mma_sync(total, left, right, total);
  }
  wmma::store_matrix_sync(sums[warp], total, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = lane; i < 256; i += 32)
    out[(long)(row + i / 16) * n + column + i % 16] = __float2half(sums[warp][i]);
}

torch::Tensor product(torch::Tensor x, torch::Tensor y) {
  const int m = x.size(0), k = x.size(1), n = y.size(0);
  auto out = torch::empty({m, n}, x.options());
  product_kernel<<<dim3(n / 64, m / 16), 128, 0, c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const half*>(x.data_ptr<at::Half>()),
      reinterpret_cast<const half*>(y.data_ptr<at::Half>()),
      reinterpret_cast<half*>(out.data_ptr<at::Half>()), n, k);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""
extension = load_inline(
    name="wmma_ext",
    cpp_sources="torch::Tensor product(torch::Tensor x, torch::Tensor y);",
    cuda_sources=SOURCE,
    functions=["product"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.product(x.contiguous(), y.contiguous())
