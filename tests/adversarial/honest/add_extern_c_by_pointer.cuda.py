# /// redteam
# problem = "add"
# devices = ["cuda"]
# what = "An extern 'C' kernel in an array of pointers, launched by cudaLaunchKernel."
# ///
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor add(torch::Tensor x, torch::Tensor y);
"""

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

extern "C" __global__ void add4(const float4* x, const float4* y, float4* out, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) {
    const float4 a = x[i], b = y[i];
    out[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
}

extern "C" __global__ void add1(const float* x, const float* y, float* out, int64_t n) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + y[i];
}

static const void* const kernels[2] = {(const void*)add1, (const void*)add4};

torch::Tensor add(torch::Tensor x, torch::Tensor y) {
  auto a = x.contiguous(), b = y.contiguous();
  auto out = torch::empty_like(a);
  const bool wide = a.numel() % 4 == 0;
  int64_t n = wide ? a.numel() / 4 : a.numel();
  const float *left = a.data_ptr<float>(), *right = b.data_ptr<float>();
  float* to = out.data_ptr<float>();
  void* arguments[] = {&left, &right, &to, &n};
  C10_CUDA_CHECK(cudaLaunchKernel(kernels[wide], dim3((n + 255) / 256), dim3(256), arguments, 0,
                                  c10::cuda::getCurrentCUDAStream()));
  return out;
}
"""

extension = load_inline(
    name="add_extern",
    cpp_sources=DECLARATIONS,
    cuda_sources=SOURCE,
    functions=["add"],
)


class ModelNew(nn.Module):
    def forward(self, x, y):
        return extension.add(x, y)
