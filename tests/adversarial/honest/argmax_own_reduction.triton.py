# /// redteam
# problem = "argmax"
# devices = ["cpu", "cuda"]
# style = "reductions"
# what = "Reduces pairs of value and place with a function of its own."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def greater(value, place, other, elsewhere):
    keep = (value > other) | ((value == other) & (place < elsewhere))
    return tl.where(keep, value, other), tl.where(keep, place, elsewhere)


@triton.jit
def argmax_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, PART: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    best = tl.full((ROWS, PART), float("-inf"), dtype=tl.float32)
    places = tl.zeros((ROWS, PART), dtype=tl.int32)
    for start in range(0, columns, PART):
        at = start + tl.arange(0, PART)[None, :] + tl.zeros((ROWS, 1), dtype=tl.int32)
        mask = (row[:, None] < rows) & (at < columns)
        x = tl.load(x_ptr + row[:, None] * columns + at, mask=mask, other=float("-inf"))
        best, places = greater(best, places, x, at)
    _, found = tl.reduce((best, places), 1, greater)
    tl.store(out_ptr + row, found.to(tl.int64), mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=torch.int64)
        argmax_kernel[(triton.cdiv(rows, 64),)](x, out, rows, columns, ROWS=64, PART=8)
        return out
