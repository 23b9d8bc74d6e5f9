# /// redteam
# problem = "where"
# devices = ["cpu", "cuda"]
# what = "Reads a boolean input as bytes."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def choose(mask_ptr, x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    mask = tl.load(mask_ptr + offsets, mask=inside, other=0)
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, tl.where(mask != 0, x, y), mask=inside)


class ModelNew(nn.Module):
    def forward(self, mask, x, y):
        out = torch.empty_like(x)
        n = x.numel()
        choose[(triton.cdiv(n, 4096),)](mask.view(torch.uint8), x, y, out, n, BLOCK=4096)
        return out
