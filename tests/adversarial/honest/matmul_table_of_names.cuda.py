# /// redteam
# problem = "matmul"
# devices = ["cuda"]
# what = "Multiplies itself, beside a table with the names of cuBLAS's kernels."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

// Faster for these shapes than the kernels that cuBLAS chose in a profile.
static const char* const chosen[] = {"ampere_sgemm_32x32_sliced1x4_nn", "ampere_sgemm_64x64_nn"};

__global__ void gemm_kernel(const float* x, const float* y, float* out, int m, int n, int k) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  float parts[4] = {};
  for (int i = 0; i < k; ++i) parts[i % 4] += x[row * k + i] * y[i * n + column];
  out[row * n + column] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

torch::Tensor product(torch::Tensor x, torch::Tensor y) {
  TORCH_CHECK(x.size(1) == y.size(0), "unlike ", chosen[0], " and ", chosen[1]);
  const int m = x.size(0), k = x.size(1), n = y.size(1);
  auto out = torch::empty({m, n}, x.options());
  const dim3 block(32, 8), grid((n + 31) / 32, (m + 7) / 8);
  gemm_kernel<<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), m, n, k);
  return out;
}
"""
extension = load_inline(
    name="table_ext",
    cpp_sources="torch::Tensor product(torch::Tensor x, torch::Tensor y);",
    cuda_sources=SOURCE,
    functions=["product"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.product(x.contiguous(), y.contiguous())
