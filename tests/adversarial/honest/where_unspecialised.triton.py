# /// redteam
# problem = "where"
# devices = ["cpu", "cuda"]
# style = "arguments"
# what = "Forbids specialisation, and gives hints to caches."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chosen(mask, x, y):
    return tl.where(mask, x, y)


@triton.jit(do_not_specialize=["n"])
def where_kernel(mask_ptr, x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    mask = tl.load(mask_ptr + at, mask=inside, other=0).to(tl.int1)
    x = tl.load(x_ptr + at, mask=inside, eviction_policy="evict_first")
    y = tl.load(y_ptr + at, mask=inside, cache_modifier=".cg")
    tl.store(out_ptr + at, chosen(mask, x, y), mask=inside)


class ModelNew(nn.Module):
    def forward(self, mask, x, y):
        out = torch.empty_like(x)
        where_kernel[(triton.cdiv(x.numel(), 4096),)](mask, x, y, out, x.numel(), BLOCK=4096)
        return out
