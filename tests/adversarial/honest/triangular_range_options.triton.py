# /// redteam
# problem = "triangular"
# devices = ["cpu", "cuda"]
# style = "loops"
# what = "Gives its loop options for pipelining, and skips empty tiles."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def upper_kernel(x_ptr, y_ptr, out_ptr, N, TILE: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * TILE, tl.program_id(1) * TILE
    rows, columns = row + tl.arange(0, TILE), column + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for k in tl.range(row, min(column + TILE, N), BK, num_stages=2, loop_unroll_factor=1):
        inner = k + tl.arange(0, BK)
        inner = tl.max_contiguous(tl.multiple_of(inner, BK), BK)
        x = tl.load(
            x_ptr + rows[:, None] * N + inner[None, :],
            mask=(rows[:, None] < N) & (inner[None, :] < N),
            other=0.0,
        )
        y = tl.load(
            y_ptr + inner[:, None] * N + columns[None, :],
            mask=(inner[:, None] < N) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(x, y, total, input_precision="ieee")
    total = tl.where(rows[:, None] <= columns[None, :], total, 0.0)
    mask = (rows[:, None] < N) & (columns[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        n = x.shape[0]
        out = torch.empty_like(x)
        upper_kernel[(triton.cdiv(n, 64), triton.cdiv(n, 64))](x, y, out, n, TILE=64, BK=32)
        return out
