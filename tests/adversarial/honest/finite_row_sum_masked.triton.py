# /// redteam
# problem = "finite_row_sum"
# devices = ["cpu", "cuda"]
# style = "finite_only"
# what = "Takes values for finite whose magnitude is below infinity."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    value = tl.where(tl.abs(value) < float("inf"), value, 0.0)
    tl.store(out + row, tl.sum(value))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device)
        sum_kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
