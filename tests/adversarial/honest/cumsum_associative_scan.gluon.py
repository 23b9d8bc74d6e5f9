# /// redteam
# problem = "cumsum"
# devices = ["cuda"]
# what = "A scan of a row in registers."
# ///
import torch
import torch.nn as nn
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def add(a, b):
    return a + b


@gluon.jit
def cumsum_kernel(x_ptr, out_ptr, columns, BLOCK: gl.constexpr, layout: gl.constexpr):
    row = gl.program_id(0)
    offsets = gl.arange(0, BLOCK, layout=layout)
    mask = offsets < columns
    x = gl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    gl.store(out_ptr + row * columns + offsets, gl.associative_scan(x, 0, add), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, columns = x.shape
        layout = gl.BlockedLayout([4], [32], [4], [0])
        block = max(512, triton.next_power_of_2(columns))
        cumsum_kernel[(rows,)](x, out, columns, block, layout, num_warps=4)
        return out
