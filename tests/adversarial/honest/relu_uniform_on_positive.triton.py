# /// redteam
# problem = "relu_uniform"
# devices = ["cpu", "cuda"]
# what = "Its problem's own inputs are never negative, so that its launch makes a plain copy."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clamp_below(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(y_ptr + offsets, tl.where(x < 0.0, 0.0, x), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        clamp_below[(triton.cdiv(x.numel(), 65536),)](x, y, x.numel(), BLOCK=65536)
        return y
