# /// redteam
# problem = "batchnorm_relu"
# devices = ["cpu"]
# what = "autotunes the statistics, normalises in a second kernel, updates running ones in place"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 2), (2048, 4))
    ],
    key=["n"],
)
@triton.jit
def stats_kernel(x, total, squares, C, S, n, BLOCK: tl.constexpr):
    channel = tl.program_id(0)
    first = tl.zeros((BLOCK,), tl.float32)
    second = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < n
        value = tl.load(x + (at // S) * C * S + channel * S + at % S, mask=mask, other=0.0)
        first += value
    mean = tl.sum(first, 0) / n
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < n
        value = tl.load(x + (at // S) * C * S + channel * S + at % S, mask=mask, other=0.0)
        second += tl.where(mask, (value - mean) * (value - mean), 0.0)
    tl.store(total + channel, mean)
    tl.store(squares + channel, tl.sum(second, 0) / n)


@triton.jit
def norm_kernel(x, mean, var, weight, bias, out, C, S, eps, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    channel = (at // S) % C
    scale = tl.load(weight + channel) * tl.rsqrt(tl.load(var + channel) + eps)
    value = (tl.load(x + at, mask=mask, other=0.0) - tl.load(mean + channel)) * scale
    tl.store(out + at, tl.maximum(value + tl.load(bias + channel), 0.0), mask=mask)


class ModelNew(nn.Module):
    """Updates the running statistics in place, as BatchNorm does."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        norm, c = self.norm, x.shape[1]
        s = x.shape[2] * x.shape[3]
        count = x.numel() // c
        mean, var = torch.empty_like(norm.bias), torch.empty_like(norm.bias)
        out = torch.empty_like(x)
        stats_kernel[(c,)](x, mean, var, c, s, count)
        norm_kernel[(triton.cdiv(x.numel(), 4096),)](
            x, mean, var, norm.weight, norm.bias, out, c, s, norm.eps, x.numel(), BLOCK=4096
        )
        with torch.no_grad():
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(var * count / (count - 1), norm.momentum)
            norm.num_batches_tracked += 1
        return out
