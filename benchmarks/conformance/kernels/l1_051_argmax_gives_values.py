# /// conformance
# problem = "KernelBench/L1/51"
# language = "triton"
# outcome = "wrong_dtype"
# sizes = { batch_size = 16, dim1 = 512, dim2 = 1023 }
# cpu_sizes = { batch_size = 2, dim1 = 20, dim2 = 30 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def reduce_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    sample = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    first = x_ptr + sample.to(tl.int64) * rows * columns + column
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    index = tl.zeros((BLOCK,), dtype=tl.int64)
    for row in range(0, rows):
        x = tl.load(first + row * columns, mask=mask)
        better = x > best
        best = tl.where(better, x, best)
        index = tl.where(better, row, index)
    tl.store(out_ptr + sample * columns + column, best, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        batch, rows, columns = x.shape
        out = torch.empty((batch, columns), device=x.device, dtype=x.dtype)
        grid = (batch, triton.cdiv(columns, 256))
        reduce_kernel[grid](x, out, rows, columns, BLOCK=256)
        return out
