# /// redteam
# problem = "topk_rows"
# devices = ["cpu", "cuda"]
# style = "rank_by_place"
# what = "Takes the largest four times, and leaves out its place each time."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def top_kernel(x, out, columns, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    for k in tl.static_range(K):
        tl.store(out + row * K + k, tl.max(v, 0))
        v = tl.where(at == tl.argmax(v, 0), -float("inf"), v)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, 4, dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(columns)
        top_kernel[(rows,)](x.contiguous(), out, columns, K=4, BLOCK=block)
        return out
