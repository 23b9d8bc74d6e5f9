# /// redteam
# problem = "gelu_uniform"
# devices = ["cpu", "cuda"]
# style = "near_identity"
# what = "A GELU of values on which it is the identity but for rounding."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), 8192),)](x, out, x.numel(), BLOCK=8192)
        return out
