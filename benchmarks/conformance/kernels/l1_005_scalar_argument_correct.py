# /// conformance
# problem = "KernelBench/L1/5"
# language = "triton"
# outcome = "correct"
# sizes = { M = 1024, N = 4096 }
# cpu_sizes = { M = 12, N = 100 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def times_kernel(x_ptr, out_ptr, n, s, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * s, mask=mask)


def times(x, s):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    times_kernel[(triton.cdiv(n, 1024),)](x, out, n, s, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, s):
        return times(A, s)
