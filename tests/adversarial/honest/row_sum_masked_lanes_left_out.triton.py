# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# style = "masked_lanes_left_out"
# what = "Leaves lanes that loaded nothing out of its sum."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sums_kernel(x, out, work, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    p = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + p * columns + at, mask=at < columns)
    tl.store(out + p, tl.sum(tl.where(at < columns, v, 0.0), 0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(rows, dtype=x.dtype, device=x.device)
        work = torch.zeros_like(out)
        block, high = triton.next_power_of_2(columns), triton.next_power_of_2(rows)
        sums_kernel[(rows,)](x, out, work, rows, columns, BLOCK=block, ROWS=high)
        return out
