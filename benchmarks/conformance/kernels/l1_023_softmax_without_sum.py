# /// conformance
# problem = "KernelBench/L1/23"
# language = "triton"
# outcome = "wrong_values"
# sizes = { batch_size = 1024, dim = 8192 }
# cpu_sizes = { batch_size = 4, dim = 300 }
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
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    tl.store(out_ptr + row * columns + offsets, tl.exp(x - tl.max(x, axis=0)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        row_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block)
        return out
