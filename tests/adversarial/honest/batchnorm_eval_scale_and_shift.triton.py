# /// redteam
# problem = "batchnorm_eval"
# devices = ["cpu", "cuda"]
# style = "scale_and_shift"
# what = "Folds a BatchNorm into a scale and a shift on every call."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, mean, var, weight, bias, out, n, C, inner, eps, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    c = (at // inner) % C
    v = tl.load(x + at, mask=inside, other=0.0)
    scale = tl.load(weight + c, mask=inside, other=0.0)
    scale *= tl.rsqrt(tl.load(var + c, mask=inside, other=1.0) + eps)
    shift = tl.load(bias + c, mask=inside, other=0.0)
    shift -= tl.load(mean + c, mask=inside, other=0.0) * scale
    tl.store(out + at, v * scale + shift, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.norm.eval()

    def forward(self, x):
        x, norm = x.contiguous(), self.norm
        out = torch.empty_like(x)
        state = norm.running_mean, norm.running_var, norm.weight, norm.bias
        sizes = x.numel(), x.shape[1], x.shape[2] * x.shape[3]
        norm_kernel[(triton.cdiv(x.numel(), 8192),)](x, *state, out, *sizes, norm.eps, BLOCK=8192)
        return out
