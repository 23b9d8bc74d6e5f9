# /// redteam
# problem = "bf16_silu"
# devices = ["cuda"]
# what = "SiLU in fp32, eight bf16 values a thread."
# ///
import torch
import torch.nn as nn
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < n
    x = gl.load(x_ptr + offsets, mask=mask, other=0.0).to(gl.float32)
    gl.store(y_ptr + offsets, (x / (1.0 + gl.exp(-x))).to(gl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        layout = gl.BlockedLayout([8], [32], [4], [0])
        silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1024, layout, num_warps=4)
        return y
