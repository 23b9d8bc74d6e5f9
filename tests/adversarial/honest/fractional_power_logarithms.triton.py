# /// redteam
# problem = "fractional_power"
# devices = ["cpu", "cuda"]
# style = "libdevice"
# what = "Raises to a power through base-two logarithms."
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
    power = libdevice.exp2(1.7 * libdevice.log2(tl.abs(x)))
    tl.store(out_ptr + offsets, tl.where(x == 0.0, 0.0, power), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
        return out
