# /// redteam
# problem = "add"
# devices = ["cpu", "cuda"]
# style = "autotune_helper"
# what = "Makes its configs from every combination of sizes and warps."
# ///
import itertools

import torch
import torch.nn as nn
import triton
import triton.language as tl


def search_space(blocks=(2048, 8192), warps=(4, 8)):
    for block, count in itertools.product(blocks, warps):
        yield triton.Config({"BLOCK": block}, num_warps=count, num_stages=2)


@triton.autotune(list(search_space()), ["n"])
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
        return out
