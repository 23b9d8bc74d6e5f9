# /// redteam
# problem = "rmsnorm_names_float"
# devices = ["cpu", "cuda"]
# what = "RMSNorm in fp32 of a reference that converts to fp32 by name."
# style = "rmsnorm_names_float"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rmsnorm(x_ptr, w_ptr, out_ptr, FEATURES: tl.constexpr):
    at = tl.arange(0, FEATURES)
    x = tl.load(x_ptr + tl.program_id(0) * FEATURES + at)
    square = tl.sum((x * x).to(tl.float32), axis=0) / FEATURES
    y = 0.001 * x.to(tl.float32) * tl.rsqrt(square + 1e-6)
    out = y * tl.load(w_ptr + at)
    tl.store(out_ptr + tl.program_id(0) * FEATURES + at, out)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        out = torch.empty_like(x)
        rmsnorm[(x.shape[0],)](x, self.weight, out, FEATURES=x.shape[1])
        return out
