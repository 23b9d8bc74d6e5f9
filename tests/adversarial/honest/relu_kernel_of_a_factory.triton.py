# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "kernel_of_a_factory"
# what = "Makes its kernel in a function."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


def make():
    @triton.jit
    def relu_kernel(x, out, n, low, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=0.0)
        tl.store(out + at, tl.maximum(v, low), mask=at < n)

    return relu_kernel


relu_kernel = make()


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 8192),)](x, out, x.numel(), 0.0, BLOCK=8192)
        return out
