# /// redteam
# problem = "bf16_silu"
# devices = ["cuda"]
# what = "A few programs take blocks in turn, four bf16 values a thread."
# ///
import torch
import torch.nn as nn
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    for start in range(gl.program_id(0) * BLOCK, n, gl.num_programs(0) * BLOCK):
        at = start + gl.arange(0, BLOCK, layout=layout)
        x = gl.load(x_ptr + at, mask=at < n, other=0.0).to(gl.float32)
        gl.store(y_ptr + at, (x / (1.0 + gl.exp(-x))).to(gl.bfloat16), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        layout = gl.BlockedLayout([4], [32], [4], [0])
        grid = (min(32, triton.cdiv(x.numel(), 512)),)
        silu_kernel[grid](x, y, x.numel(), 512, layout, num_warps=4)
        return y
