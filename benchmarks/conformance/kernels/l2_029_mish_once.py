# /// conformance
# problem = "KernelBench/L2/29"
# language = "triton"
# outcome = "wrong_values"
# cpu_sizes = { batch_size = 8, in_features = 64, out_features = 48 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mish_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(
        out_ptr + offsets, x * (2.0 * tl.sigmoid(2.0 * tl.log(1.0 + tl.exp(x))) - 1.0), mask=mask
    )


def mish(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    mish_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return mish(self.linear(x))
