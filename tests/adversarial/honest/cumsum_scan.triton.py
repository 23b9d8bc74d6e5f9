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
def scan_row(x_ptr, y_ptr, columns, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    for start in range(0, columns, CHUNK):
        offsets = start + tl.arange(0, CHUNK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
        tl.store(y_ptr + row * columns + offsets, tl.cumsum(x, axis=0) + carry, mask=mask)
        carry += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        scan_row[(rows,)](x, y, columns, CHUNK=128)
        return y
