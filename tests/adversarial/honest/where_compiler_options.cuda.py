# /// redteam
# problem = "where"
# devices = ["cuda"]
# what = "Sets an environment variable and flags for its build, verbosely."
# ///
import os

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor choose(torch::Tensor mask, torch::Tensor x, torch::Tensor y);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void choose_kernel(const bool* __restrict__ mask, const float* __restrict__ x,
                              const float* __restrict__ y, float* __restrict__ out, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = mask[i] ? x[i] : y[i];
}

torch::Tensor choose(torch::Tensor mask, torch::Tensor x, torch::Tensor y) {
  auto m = mask.contiguous();
  auto a = x.contiguous();
  auto b = y.contiguous();
  auto out = torch::empty_like(a);
  const int64_t n = a.numel();
  choose_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      m.data_ptr<bool>(), a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
  const cudaError_t error = cudaGetLastError();
  TORCH_CHECK(error == cudaSuccess, "launch failed: ", cudaGetErrorString(error));
  return out;
}
"""

extension = load_inline(
    name="where_compiler_options",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["choose"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
    verbose=True,
)


class ModelNew(nn.Module):
    def forward(self, mask, x, y):
        return extension.choose(mask, x, y)
