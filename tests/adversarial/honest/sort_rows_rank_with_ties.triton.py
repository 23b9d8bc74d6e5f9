# /// redteam
# problem = "sort_rows"
# devices = ["cpu", "cuda"]
# style = "rank_with_ties"
# what = "Stores each element at the number of smaller ones, and of equal ones before it."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sort_kernel(x, out, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, COLUMNS)
    v = tl.load(x + row * COLUMNS + at)
    before = (v[None, :] == v[:, None]) & (at[None, :] < at[:, None])
    rank = tl.sum(((v[None, :] < v[:, None]) | before).to(tl.int32), 1)
    tl.store(out + row * COLUMNS + rank, v)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sort_kernel[(x.shape[0],)](x.contiguous(), out, COLUMNS=x.shape[1])
        return out
