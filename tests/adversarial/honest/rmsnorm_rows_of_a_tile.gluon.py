# /// redteam
# problem = "rmsnorm"
# devices = ["cuda"]
# what = "A tile of eight rows a program, its sums in a layout without columns."
# ///
import torch
import torch.nn as nn
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def rmsnorm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    rows,
    columns,
    eps,
    ROWS: gl.constexpr,
    BLOCK: gl.constexpr,
    layout: gl.constexpr,
):
    row_layout: gl.constexpr = gl.SliceLayout(1, layout)
    column_layout: gl.constexpr = gl.SliceLayout(0, layout)
    row = gl.program_id(0) * ROWS + gl.arange(0, ROWS, layout=row_layout)
    column = gl.arange(0, BLOCK, layout=column_layout)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    places = row[:, None] * columns + column[None, :]
    x = gl.load(x_ptr + places, mask=mask, other=0.0)
    weight = gl.load(weight_ptr + column, mask=column < columns, other=0.0)
    rms = gl.sqrt(gl.sum(x * x, axis=1) / columns + eps)
    gl.store(y_ptr + places, x / rms[:, None] * weight[None, :], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        layout = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
        block = triton.next_power_of_2(columns)
        rmsnorm_kernel[(triton.cdiv(rows, 8),)](
            x, self.weight, y, rows, columns, self.eps, 8, block, layout, num_warps=4
        )
        return y
