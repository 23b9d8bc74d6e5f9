# /// conformance
# problem = "KernelBench/L2/81"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 8, in_features = 64, out_features = 48 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swish_tanh_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = x * tl.sigmoid(x) / 2.0
    y = tl.minimum(tl.maximum(y, -1.0), 1.0)
    tl.store(out_ptr + offsets, 2.0 * tl.sigmoid(2.0 * y) - 1.0, mask=mask)


def swish_tanh(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    swish_tanh_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, x):
        return swish_tanh(self.gemm(x))
