# /// redteam
# problem = "truncate"
# devices = ["cpu", "cuda"]
# style = "last_row"
# what = "Truncates every element in the kernel."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def truncate_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, values.to(tl.int32).to(tl.float32), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        truncate_kernel[(triton.cdiv(x.numel(), 8192),)](x, out, x.numel(), BLOCK=8192)
        return out
