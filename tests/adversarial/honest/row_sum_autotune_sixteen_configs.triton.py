# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# style = "autotune_configs"
# what = "Has sixteen configs, blocks shorter than a row among them, over which it loops."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block in (128, 256, 512, 1024)
    for warps in (1, 2, 4, 8)
]


@triton.autotune(CONFIGS, key=["columns"])
@triton.jit
def sum_kernel(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x + row * columns + start + at, mask=start + at < columns, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        sum_kernel[(rows,)](x, out, columns)
        return out
