# /// redteam
# problem = "cumsum"
# devices = ["cpu", "cuda"]
# style = "scans"
# what = "Scans rows part by part, and carries the sum on."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, rows, columns, PART: tl.constexpr):
    row = tl.program_id(0)
    carried = 0.0
    for start in range(0, columns, PART):
        at = start + tl.arange(0, PART)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        tl.store(out_ptr + row * columns + at, tl.cumsum(x, 0) + carried, mask=at < columns)
        carried += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        cumsum_kernel[(x.shape[0],)](x, out, x.shape[0], x.shape[1], PART=64)
        return out
