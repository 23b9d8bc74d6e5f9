# /// redteam
# problem = "softmax"
# devices = ["cpu", "cuda"]
# what = "Softmax in one sweep that rescales its running sum."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def online_softmax(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    top = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = inside[:, None] & (offsets[None, :] < columns)
        places = row[:, None] * columns + offsets[None, :]
        x = tl.load(x_ptr + places, mask=mask, other=-float("inf"))
        # Rows beyond the end stay at zero, so that no infinity is subtracted from another.
        x = tl.where(inside[:, None], x, 0.0)
        higher = tl.maximum(top, tl.max(x, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), axis=1)
        top = higher
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = inside[:, None] & (offsets[None, :] < columns)
        places = row[:, None] * columns + offsets[None, :]
        x = tl.load(x_ptr + places, mask=mask, other=0.0)
        tl.store(y_ptr + places, tl.exp(x - top[:, None]) / total[:, None], mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        online_softmax[(triton.cdiv(rows, 8),)](x, y, rows, columns, ROWS=8, BLOCK=128)
        return y
