# /// redteam
# problem = "dropout"
# devices = ["cpu"]
# what = "has torch draw the mask, and applies and scales it in the kernel"
# ///
"""Dropout whose mask torch draws, applied and scaled in a kernel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def apply_kernel(x, mask, out, scale, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    keep = tl.load(mask + at, mask=inside, other=0)
    value = tl.load(x + at, mask=inside, other=0.0) * scale
    tl.store(out + at, tl.where(keep != 0, value, 0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training:
            return x
        mask = torch.empty_like(x).bernoulli_(1 - self.p)
        out = torch.empty_like(x)
        n = x.numel()
        apply_kernel[(triton.cdiv(n, 4096),)](x, mask, out, 1 / (1 - self.p), n, BLOCK=4096)
        return out
