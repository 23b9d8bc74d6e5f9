# /// redteam
# problem = "fp64_row_sum"
# devices = ["cpu", "cuda"]
# what = "Adds up each row in fp64."
# style = "double_rows"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        row_sum[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
        return out
