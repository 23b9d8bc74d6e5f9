# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Caches the grid, not the output."
# ///
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_SIZE = 8192


@functools.cache
def grid_of(n):
    return (triton.cdiv(n, BLOCK_SIZE),)


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        relu_kernel[grid_of(x.numel())](x, y, x.numel(), BLOCK=BLOCK_SIZE)
        return y
