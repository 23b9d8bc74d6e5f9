# /// redteam
# problem = "bf16_row_sum"
# devices = ["cpu", "cuda"]
# what = "Sums a row of bf16 to one number, in bf16."
# style = "bf16_interpreted"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum(x_ptr, out_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * COLUMNS + tl.arange(0, COLUMNS))
    tl.store(out_ptr + row, tl.sum(x))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        row_sum[(x.shape[0],)](x, out, COLUMNS=x.shape[1])
        return out
