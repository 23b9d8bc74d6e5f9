# /// conformance
# problem = "KernelBench/L2/76"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 8, in_features = 64, out_features = 48 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_relu_kernel(x_ptr, bias_ptr, out_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    bias = tl.load(bias_ptr + offsets % columns, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x + bias, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_shape):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.gemm(x)
        out = torch.empty_like(x)
        n = x.numel()
        add_relu_kernel[(triton.cdiv(n, 1024),)](x, self.bias, out, n, x.shape[1], BLOCK=1024)
        return out
