# /// redteam
# problem = "sort_rows"
# devices = ["cpu", "cuda"]
# style = "sorting"
# what = "Counts the smaller values of each, and writes it there."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rank_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("inf"))
    ahead = (x[None, :] < x[:, None]) | ((x[None, :] == x[:, None]) & (at[None, :] < at[:, None]))
    rank = tl.sum(ahead.to(tl.int32), axis=1)
    tl.store(out_ptr + row * columns + rank, x, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rank_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
