# /// conformance
# problem = "KernelBench/L2/14"
# language = "triton"
# outcome = "either"
# cpu = false
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, out_ptr, columns, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0) * factor)


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, scaling_factor):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size, input_size))
        self.factor = scaling_factor

    def forward(self, x):
        x = torch.matmul(x, self.weight.T)
        out = torch.empty(x.shape[0], 1, device=x.device)
        block = triton.next_power_of_2(x.shape[1])
        row_kernel[(x.shape[0],)](x, out, x.shape[1], self.factor / 2, BLOCK=block)
        return out
