# /// conformance
# problem = "KernelBench/L2/85"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 1, height = 18, width = 18 }
# ///

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def clamp_kernel(x_ptr, out_ptr, n, low, high, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.minimum(tl.maximum(x, low), high), mask=mask)


def clamp(x, low, high):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    clamp_kernel[(triton.cdiv(n, 1024),)](x, out, n, low, high, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        num_groups,
        scale_shape,
        maxpool_kernel_size,
        clamp_min,
        clamp_max,
    ):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(num_groups, out_channels)
        self.scale = nn.Parameter(torch.ones(scale_shape))
        self.pool, self.low, self.high = maxpool_kernel_size, clamp_min, clamp_max

    def forward(self, x):
        x = self.group_norm(self.conv(x)) * self.scale
        return clamp(F.max_pool2d(x, self.pool), self.low, self.high)
