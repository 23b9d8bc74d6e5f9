# /// conformance
# problem = "KernelBench/L1/12"
# language = "cuda"
# outcome = "correct"
# cpu_sizes = { M = 96, N = 64 }
# cpu = false
# ///

import torch
import torch.nn as nn

SOURCE = """
extern "C" __global__ void scale_rows(
    const float* a, const float* b, float* out, int n, int columns) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < n) out[index] = a[index / columns] * b[index];
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = torch.cuda._compile_kernel(SOURCE, "scale_rows")

    def forward(self, A, B):
        out = torch.empty_like(B)
        n = B.numel()
        self.kernel(((n + 255) // 256, 1, 1), (256, 1, 1), (A, B, out, n, B.shape[1]))
        return out
