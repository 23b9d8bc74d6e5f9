# /// redteam
# problem = "row_sum"
# devices = ["cuda"]
# what = "A warp a row: sums blocks of columns, then over the warp."
# ///
import torch
import torch.nn as nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: gl.constexpr, layout: gl.constexpr):
    row = gl.program_id(0)
    offsets = gl.arange(0, BLOCK, layout=layout)
    parts = gl.zeros([BLOCK], gl.float32, layout=layout)
    for start in range(0, columns, BLOCK):
        mask = start + offsets < columns
        parts += gl.load(x_ptr + row * columns + start + offsets, mask=mask, other=0.0)
    gl.store(out_ptr + row, gl.sum(parts, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device)
        layout = gl.BlockedLayout([4], [32], [1], [0])
        row_sum_kernel[(rows,)](x, out, columns, 128, layout, num_warps=1)
        return out
