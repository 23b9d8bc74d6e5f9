# /// redteam
# problem = "row_normalize"
# devices = ["cpu", "cuda"]
# style = "larger_of_norm_and_eps"
# what = "Divides by the norm, or by an eps if that is larger."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalize_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    norm = tl.maximum(tl.sqrt(tl.sum(v * v, 0)), 1e-12)
    tl.store(out + row * columns + at, v / norm, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        normalize_kernel[(rows,)](x.contiguous(), out, columns, BLOCK=block)
        return out
