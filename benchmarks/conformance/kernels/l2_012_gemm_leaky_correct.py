# /// conformance
# problem = "KernelBench/L2/12"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 8, in_features = 64, out_features = 48 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def leaky_kernel(x_ptr, out_ptr, n, factor, slope, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    x = x * factor
    tl.store(out_ptr + offsets, tl.where(x > 0, x, x * slope), mask=mask)


def leaky(x, factor, slope):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    leaky_kernel[(triton.cdiv(n, 1024),)](x, out, n, factor, slope, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, multiplier, negative_slope):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.multiplier, self.slope = multiplier, negative_slope

    def forward(self, x):
        return leaky(self.gemm(x), self.multiplier, self.slope)
