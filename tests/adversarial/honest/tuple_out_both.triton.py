# /// redteam
# problem = "tuple_out"
# devices = ["cpu", "cuda"]
# what = "Returns a tuple of floats and integers."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_rows(x_ptr, value_ptr, index_ptr, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = tl.arange(0, BLOCK)
    mask = offsets[None, :] < columns
    places = row[:, None] * columns + offsets[None, :]
    x = tl.load(x_ptr + places, mask=mask, other=-float("inf"))
    top = tl.max(x, axis=1)
    first = tl.min(tl.where(x == top[:, None], offsets[None, :], BLOCK), axis=1)
    tl.store(value_ptr + row, top)
    tl.store(index_ptr + row, first.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        values = torch.empty(rows, dtype=x.dtype, device=x.device)
        indices = torch.empty(rows, dtype=torch.long, device=x.device)
        block = triton.next_power_of_2(columns)
        max_rows[(rows // 16,)](x, values, indices, columns, ROWS=16, BLOCK=block)
        return values, indices
