# /// redteam
# problem = "transpose_copy"
# devices = ["cpu", "cuda"]
# what = "Transposes tile by tile."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl

TILE = tl.constexpr(64)


@triton.jit
def transpose_tile(x_ptr, y_ptr, rows, columns):
    r = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    tile = tl.load(x_ptr + r[:, None] * columns + c[None, :], mask=mask)
    turned = (c[:, None] < columns) & (r[None, :] < rows)
    tl.store(y_ptr + c[:, None] * rows + r[None, :], tl.trans(tile), mask=turned)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty(columns, rows, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, TILE.value), triton.cdiv(columns, TILE.value))
        transpose_tile[grid](x, y, rows, columns)
        return y
