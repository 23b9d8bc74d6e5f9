# /// redteam
# problem = "silu"
# devices = ["cpu", "cuda"]
# style = "imported_names"
# what = "Imports functions of the language by name."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language import arange, exp, load, program_id, store


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = program_id(0) * BLOCK + arange(0, BLOCK)
    x = load(x_ptr + at, mask=at < n)
    store(out_ptr + at, x / (1.0 + exp(-x)), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        silu_kernel[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
        return out
