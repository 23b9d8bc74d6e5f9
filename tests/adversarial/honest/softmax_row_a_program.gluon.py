# /// redteam
# problem = "softmax"
# devices = ["cuda"]
# what = "A program a row, in registers: one load, one store."
# ///
import torch
import torch.nn as nn
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: gl.constexpr, layout: gl.constexpr):
    row = gl.program_id(0)
    offsets = gl.arange(0, BLOCK, layout=layout)
    mask = offsets < columns
    x = gl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf")).to(gl.float32)
    x = gl.exp(x - gl.max(x, axis=0))
    y = x / gl.sum(x, axis=0)
    gl.store(y_ptr + row * columns + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        # Each thread loads 16 bytes; a long row has more warps.
        held, warps = 16 // x.element_size(), 4 if columns < 2048 else 8
        layout = gl.BlockedLayout([held], [32], [warps], [0])
        block = max(held * 32 * warps, triton.next_power_of_2(columns))
        softmax_kernel[(rows,)](x, y, columns, block, layout, num_warps=warps)
        return y
