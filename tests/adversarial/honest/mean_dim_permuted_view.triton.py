# /// redteam
# problem = "mean_dim"
# devices = ["cpu", "cuda"]
# what = "Permutes its input and makes it contiguous with torch before the kernel."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_rows(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (offsets[None, :] < columns)
    x = tl.load(x_ptr + row[:, None] * columns + offsets[None, :], mask=mask, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, axis=1) / columns, mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.permute(0, 2, 1).contiguous().view(-1, x.shape[1])
        y = torch.empty(rows.shape[0], dtype=x.dtype, device=x.device)
        count, columns = rows.shape
        block = triton.next_power_of_2(columns)
        mean_rows[(triton.cdiv(count, 32),)](rows, y, count, columns, ROWS=32, BLOCK=block)
        return y.view(x.shape[0], x.shape[2])
