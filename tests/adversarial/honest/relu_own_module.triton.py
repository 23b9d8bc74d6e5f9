# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Calls its kernel from modules of its own in a Sequential, for half of the rows each."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, 0.0), mask=mask)


class HalfRelu(nn.Module):
    def __init__(self, half):
        super().__init__()
        self.half = half

    def forward(self, state):
        x, y = state
        middle = x.shape[0] // 2
        rows = slice(0, middle) if self.half == 0 else slice(middle, None)
        n = x[rows].numel()
        relu_kernel[(triton.cdiv(n, 8192),)](x[rows], y[rows], n, BLOCK=8192)
        return x, y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.halves = nn.Sequential(HalfRelu(0), HalfRelu(1))

    def forward(self, x):
        return self.halves((x.contiguous(), torch.empty_like(x)))[1]
