# /// redteam
# problem = "transpose_copy"
# devices = ["cpu", "cuda"]
# style = "reshaping"
# what = "Transposes tiles with permute."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, columns, TILE: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask)
    turned = (column[:, None] < columns) & (row[None, :] < rows)
    tl.store(out_ptr + column[:, None] * rows + row[None, :], tl.permute(tile, (1, 0)), mask=turned)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty((columns, rows), device=x.device, dtype=x.dtype)
        grid = [triton.cdiv(rows, 64), triton.cdiv(columns, 64)]
        transpose_kernel[grid](x, out, rows, columns, TILE=64)
        return out
