# /// conformance
# problem = "KernelBench/L2/99"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 8, in_features = 64, out_features = 48 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    x = tl.where(mask, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), -float("inf"))
    x = x - tl.max(x, axis=0)
    top = tl.exp(x)
    tl.store(out_ptr + row * columns + offsets, top / tl.sum(top, axis=0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        x = self.linear(x)
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        row_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block)
        return out
