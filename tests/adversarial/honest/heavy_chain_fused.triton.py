# /// redteam
# problem = "heavy_chain"
# devices = ["cuda"]
# what = "Fuses twenty steps: honestly an order of magnitude faster."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def fused_chain(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    x = libdevice.tanh(x * 1.5 + 0.5) * 2.0 - 0.25
    x = 3.0 / (1.0 + tl.exp(-x)) - 1.0
    x = tl.sqrt(tl.abs(x) + 0.125) * 1.25
    x = libdevice.sin(x)
    x = tl.exp(-(x * x + 0.75)) * 4.0 - 0.5
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        fused_chain[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
