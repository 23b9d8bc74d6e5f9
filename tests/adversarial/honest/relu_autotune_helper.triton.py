# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "autotune_helper"
# what = "Makes its configs in a plain function."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def make_configs():
    return [
        triton.Config({"BLOCK": block}, num_warps=warps)
        for block in (4096, 8192)
        for warps in (4, 8)
    ]


@triton.autotune(configs=make_configs(), key=["n"])
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
