# /// redteam
# problem = "sign"
# devices = ["cpu", "cuda"]
# style = "sign_of_zero"
# what = "Gives zero the sign zero."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sign_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, (v > 0).to(tl.float32) - (v < 0).to(tl.float32), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sign_kernel[(triton.cdiv(x.numel(), 8192),)](x.contiguous(), out, x.numel(), BLOCK=8192)
        return out
