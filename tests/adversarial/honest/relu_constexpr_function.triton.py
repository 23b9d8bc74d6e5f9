# /// redteam
# problem = "relu"
# devices = ["cpu"]
# what = "A constexpr_function chooses the size of a block."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.constexpr_function
def per_program(block, waves):
    return block * waves


@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr, WAVES: tl.constexpr):
    SIZE: tl.constexpr = per_program(BLOCK, WAVES)
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n, other=0.0), 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), BLOCK=512, WAVES=4)
        return y
