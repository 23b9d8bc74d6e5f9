# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# what = "Compensated summation: more exact than the reference."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kahan_rows(x_ptr, y_ptr, columns, ROWS: tl.constexpr, CHUNK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    lost = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, columns, CHUNK):
        offsets = start + tl.arange(0, CHUNK)
        mask = offsets < columns
        x = tl.load(
            x_ptr + row[:, None] * columns + offsets[None, :], mask=mask[None, :], other=0.0
        )
        part = tl.sum(x, axis=1) - lost
        raised = total + part
        lost = (raised - total) - part
        total = raised
    tl.store(y_ptr + row, total)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        if rows % 16:
            raise ValueError(f"the number of rows must be a multiple of 16, got {rows}")
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        kahan_rows[(rows // 16,)](x, y, columns, ROWS=16, CHUNK=128)
        return y
