# /// redteam
# problem = "cumsum"
# devices = ["cpu", "cuda"]
# what = "A scan per row, with a carry from chunk to chunk."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_rows(x_ptr, y_ptr, columns, ROWS: tl.constexpr, CHUNK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    carry = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, columns, CHUNK):
        offsets = start + tl.arange(0, CHUNK)
        mask = offsets[None, :] < columns
        places = row[:, None] * columns + offsets[None, :]
        x = tl.load(x_ptr + places, mask=mask, other=0.0)
        tl.store(y_ptr + places, tl.cumsum(x, axis=1) + carry[:, None], mask=mask)
        carry += tl.sum(x, axis=1)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        scan_rows[(rows // 16,)](x, y, columns, ROWS=16, CHUNK=128)
        return y
