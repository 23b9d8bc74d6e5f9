# /// redteam
# problem = "wide_softmax"
# devices = ["cuda"]
# what = "An operator of its own around a kernel whose block and warps are chosen by autotune."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": block}, num_warps=warps)
        for block in (1024, 2048, 4096)
        for warps in (4, 8)
    ],
    key=["columns"],
)
@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    tops = tl.full((BLOCK,), float("-inf"), tl.float32)
    totals = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        value = tl.load(x + start + lanes, mask=lanes < columns, other=float("-inf"))
        top = tl.maximum(tops, value)
        known = top > float("-inf")
        totals = tl.where(known, totals * tl.exp(tops - top) + tl.exp(value - top), 0.0)
        tops = top
    top = tl.max(tops)
    total = tl.sum(tl.where(tops > float("-inf"), totals * tl.exp(tops - top), 0.0))
    for at in range(0, columns, BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        value = tl.load(x + start + lanes, mask=lanes < columns, other=float("-inf"))
        tl.store(y + start + lanes, tl.exp(value - top) / total, mask=lanes < columns)


@torch.library.custom_op("wide_rows::softmax", mutates_args=())
def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1])
    return y


@softmax.register_fake
def _(x):
    return torch.empty_like(x)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.wide_rows.softmax(x.contiguous())
