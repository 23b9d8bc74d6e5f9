# /// conformance
# problem = "KernelBench/L1/91"
# language = "triton"
# outcome = "correct"
# sizes = { batch_size = 1024, input_shape = [4096] }
# cpu_sizes = { batch_size = 3, input_shape = [1500] }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    carry = 0.0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        places = row + columns - 1 - offsets
        x = tl.load(x_ptr + places, mask=mask, other=0.0)
        total = tl.cumsum(x, axis=0) + carry
        tl.store(out_ptr + places, total, mask=mask)
        carry += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        scan_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
        return out
