# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# style = "atomic_halves"
# what = "Two programs add to one place by atomic operations."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sums_kernel(x, out, work, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    p = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    row = p // 2
    v = tl.load(x + row * columns + at, mask=(at < columns) & (at % 2 == p % 2), other=0.0)
    tl.atomic_add(out + row, tl.sum(v, 0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(rows, dtype=x.dtype, device=x.device)
        work = torch.zeros_like(out)
        block, high = triton.next_power_of_2(columns), triton.next_power_of_2(rows)
        sums_kernel[(2 * rows,)](x, out, work, rows, columns, BLOCK=block, ROWS=high)
        return out
