# /// conformance
# problem = "KernelBench/L2/22"
# language = "triton"
# outcome = "wrong_shape"
# cpu_sizes = { batch_size = 8, input_size = 64, hidden_size = 48 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, out_ptr, columns, factor, low, high, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    x = tl.where(mask, tl.minimum(tl.maximum(x * factor, low), high), -float("inf"))
    top = tl.max(x, axis=0)
    total = top + tl.log(tl.sum(tl.exp(x - top), axis=0))
    soft = tl.maximum(total, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(total)))
    tl.store(out_ptr + row, total * total * (2.0 * tl.sigmoid(2.0 * soft) - 1.0))


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, scale_factor, clamp_min, clamp_max):
        super().__init__()
        self.matmul = nn.Linear(input_size, hidden_size)
        self.scale, self.low, self.high = scale_factor, clamp_min, clamp_max

    def forward(self, x):
        x = self.matmul(x)
        out = torch.empty(x.shape[0], device=x.device)
        block = triton.next_power_of_2(x.shape[1])
        factors = (2 * self.scale, self.low, self.high)
        row_kernel[(x.shape[0],)](x, out, x.shape[1], *factors, BLOCK=block)
        return out
