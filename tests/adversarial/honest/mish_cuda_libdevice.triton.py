# /// redteam
# problem = "mish"
# devices = ["cpu", "cuda"]
# style = "libdevice_names"
# what = "Imports the CUDA form of libdevice under another name."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice as device


@triton.jit
def softplus(x):
    return tl.maximum(x, 0.0) + device.log1p(device.exp(-tl.abs(x)))


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x * device.tanh(softplus(x)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
        return out
