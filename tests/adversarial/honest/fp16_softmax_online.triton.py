# /// redteam
# problem = "fp16_softmax"
# devices = ["cpu", "cuda"]
# what = "Walks a row in blocks with a running maximum and sum in fp32."
# style = "half_rows"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_online(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0) * columns
    top = -float("inf")
    total = 0.0
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + at, mask=at < columns, other=0.0).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(out_ptr + start + at, y.to(tl.float16), mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, dtype=torch.float16, device=x.device)
        softmax_online[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
        return out
