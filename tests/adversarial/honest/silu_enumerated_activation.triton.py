# /// redteam
# problem = "silu"
# devices = ["cpu"]
# what = "An enumeration chooses the activation at compile time."
# ///
import enum

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Act(enum.IntEnum):
    RELU = 0
    SILU = 1


SILU: tl.constexpr = tl.constexpr(int(Act.SILU))


@triton.jit
def act_kernel(x, y, n, ACT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    if ACT == SILU:
        v = v * tl.sigmoid(v)
    else:
        v = tl.maximum(v, 0.0)
    tl.store(y + at, v, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        act_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), ACT=Act.SILU, BLOCK=1024)
        return y
