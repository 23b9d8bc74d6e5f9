# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# what = "Adds parts of rows to zeros with atomics."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_sums(x_ptr, y_ptr, columns, ROWS: tl.constexpr, CHUNK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    places = row[:, None] * columns + offsets[None, :]
    x = tl.load(x_ptr + places, mask=offsets[None, :] < columns, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, axis=1))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.zeros(rows, device=x.device)
        partial_sums[(rows // 32, triton.cdiv(columns, 256))](x, y, columns, ROWS=32, CHUNK=256)
        return y
