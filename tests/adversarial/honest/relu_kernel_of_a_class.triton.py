# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "kernel_of_a_class"
# what = "Keeps its kernel in a class."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Kernels:
    @triton.jit
    def relu_kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=0.0)
        tl.store(out + at, tl.where(v > 0, v, 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        Kernels.relu_kernel[(triton.cdiv(x.numel(), 8192),)](x, out, x.numel(), BLOCK=8192)
        return out
