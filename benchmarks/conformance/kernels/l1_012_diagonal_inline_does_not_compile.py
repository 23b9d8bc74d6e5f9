# /// conformance
# problem = "KernelBench/L1/12"
# language = "cuda"
# outcome = "cuda_compile_error"
# documented = "no answer to a load error"
# cpu_sizes = { M = 96, N = 64 }
# cpu = false
# limit_s = 240
# ///

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void scale_rows(const float* a, const float* b, float* out, int n, int columns) {
  integer index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < n) out[index] = a[index / columns] * b[index];
}

torch::Tensor scale(torch::Tensor a, torch::Tensor b) {
  auto out = torch::empty_like(b);
  int n = b.numel();
  scale_rows<<<(n + 255) / 256, 256>>>(
      a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n, b.size(1));
  return out;
}
"""
extension = load_inline(
    name="conformance_scale_broken",
    cpp_sources="torch::Tensor scale(torch::Tensor a, torch::Tensor b);",
    cuda_sources=CUDA,
    functions=["scale"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return extension.scale(A, B)
