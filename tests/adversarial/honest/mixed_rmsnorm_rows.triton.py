# /// redteam
# problem = "mixed_rmsnorm"
# devices = ["cpu", "cuda"]
# what = "Reads bf16 rows and an fp32 weight, and rounds once."
# style = "mixed_rows"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rmsnorm(x_ptr, w_ptr, out_ptr, features, BLOCK: tl.constexpr):
    start = tl.program_id(0) * features
    at = tl.arange(0, BLOCK)
    inside = at < features
    x = tl.load(x_ptr + start + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / features + 1e-6)
    y = x * scale * tl.load(w_ptr + at, mask=inside)
    tl.store(out_ptr + start + at, y.to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        out = torch.empty_like(x)
        rmsnorm[(x.shape[0],)](x, self.weight, out, x.shape[1], BLOCK=256)
        return out
