# /// redteam
# problem = "silu"
# devices = ["cpu", "cuda"]
# style = "autotune_helper"
# what = "Computes the default of its block size in a plain function."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def widest(limit):
    return triton.next_power_of_2(limit // 2 + 1)


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr = widest(4096)):  # noqa: B008
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x / (1.0 + tl.exp(-x)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), widest(4096)),)](x, out, x.numel())
        return out
