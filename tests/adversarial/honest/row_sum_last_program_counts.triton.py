# /// redteam
# problem = "row_sum"
# devices = ["cpu"]
# style = "last_program_counts"
# what = "The last program to count itself reads what all stored."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sums_kernel(x, out, work, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    p = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    every = tl.arange(0, ROWS)
    v = tl.load(x + p * columns + at, mask=at < columns, other=0.0)
    s = tl.sum(v, 0)
    tl.store(work + p, s)
    done = tl.atomic_add(work + rows, 1.0)
    if done == rows - 1.0:
        kept = tl.load(work + every, mask=every < rows)
        tl.store(out + every, kept, mask=every < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(rows, dtype=x.dtype, device=x.device)
        work = torch.zeros(rows + 1, dtype=x.dtype, device=x.device)
        block, high = triton.next_power_of_2(columns), triton.next_power_of_2(rows)
        sums_kernel[(rows,)](x, out, work, rows, columns, BLOCK=block, ROWS=high)
        return out
