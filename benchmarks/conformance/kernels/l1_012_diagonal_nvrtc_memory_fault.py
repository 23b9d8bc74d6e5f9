# /// conformance
# problem = "KernelBench/L1/12"
# language = "cuda"
# outcome = "memory_fault"
# cpu_sizes = { M = 96, N = 64 }
# cpu = false
# ///

import torch
import torch.nn as nn

SOURCE = """
extern "C" __global__ void spoil(float* out, int n) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < n) out[(1LL << 40) + (long long)index * 1048576] = 1.0f;
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = torch.cuda._compile_kernel(SOURCE, "spoil")

    def forward(self, A, B):
        out = torch.empty_like(B)
        n = B.numel()
        self.kernel(((n + 255) // 256, 1, 1), (256, 1, 1), (out, n))
        return out
