# /// redteam
# problem = "scaled_add"
# devices = ["cpu", "cuda"]
# what = "Its forward has defaults and takes a number."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_add(x_ptr, y_ptr, out_ptr, alpha, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + alpha * y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y=None, alpha=1.0, *, block=4096):
        y = x if y is None else y
        out = torch.empty_like(x)
        n = x.numel()
        scaled_add[(triton.cdiv(n, block),)](x, y, out, alpha, n, BLOCK=block)
        return out
