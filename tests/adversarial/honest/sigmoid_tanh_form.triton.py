# /// redteam
# problem = "silu"
# devices = ["cpu", "cuda"]
# style = "libdevice"
# what = "Writes the sigmoid by tanh and a fused multiply-add."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    half = tl.full((BLOCK,), 0.5, dtype=tl.float32)
    tl.store(out_ptr + offsets, x * tl.fma(half, libdevice.tanh(half * x), half), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
        return out
