# /// redteam
# problem = "bf16_sort_rows"
# devices = ["cpu", "cuda"]
# what = "Sorts rows of bf16 by tl.sort, which compares and exchanges bits."
# style = "bf16_interpreted"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sort_rows(x_ptr, out_ptr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(out_ptr + at, tl.sort(tl.load(x_ptr + at)))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sort_rows[(x.shape[0],)](x, out, COLUMNS=x.shape[1])
        return out
