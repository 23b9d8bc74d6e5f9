# /// redteam
# problem = "fp16_chain"
# devices = ["cuda"]
# what = "Computes in fp16 pairs, and rounds each step as the reference does."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_fp16.h>

__global__ void chain_kernel(const __half2* x, const __half2* y, __half2* out, long pairs) {
  const __half2 zero = __float2half2_rn(0.0f), half = __float2half2_rn(0.5f);
  const long step = gridDim.x * (long)blockDim.x;
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < pairs; i += step) {
    __half2 value = __hadd2_rn(__hmul2_rn(x[i], y[i]), x[i]);
    value = __hmul2_rn(__hmax2(value, zero), half);
    out[i] = __hadd2_rn(value, y[i]);
  }
}

torch::Tensor chain(torch::Tensor x, torch::Tensor y) {
  auto left = x.contiguous(), right = y.contiguous();
  auto out = torch::empty_like(left);
  chain_kernel<<<2112, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const __half2*>(left.data_ptr()),
      reinterpret_cast<const __half2*>(right.data_ptr()),
      reinterpret_cast<__half2*>(out.data_ptr()), left.numel() / 2);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""
extension = load_inline(
    name="fp16_chain_pairs",
    cpp_sources="torch::Tensor chain(torch::Tensor x, torch::Tensor y);",
    cuda_sources=SOURCE,
    functions=["chain"],
    extra_cuda_cflags=[
        "-U__CUDA_NO_HALF_OPERATORS__",
        "-U__CUDA_NO_HALF_CONVERSIONS__",
        "-U__CUDA_NO_HALF2_OPERATORS__",
    ],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.chain(x, y)
