# /// conformance
# problem = "KernelBench/L2/24"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 2, D = 6, H = 8, W = 8 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def channel_kernel(x_ptr, out_ptr, area, n, channels, BLOCK: tl.constexpr, CHANNELS: tl.constexpr):
    pixels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNELS)
    first = pixels // area * area * channels + pixels % area
    places = first[:, None] + channel[None, :] * area
    mask = (pixels[:, None] < n) & (channel[None, :] < channels)
    x = tl.load(x_ptr + places, mask=mask, other=-float("inf"))
    x = x - tl.max(tl.where(mask, x, -1e30), axis=1)[:, None]
    top = tl.where(mask, tl.exp(x), 0.0)
    total = tl.sum(top, axis=1)
    tl.store(out_ptr + places, top / total[:, None], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dim):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.dim = dim

    def forward(self, x):
        x = self.conv(x)
        x = torch.min(x, dim=self.dim)[0].contiguous()
        out = torch.empty_like(x)
        area = x.shape[2] * x.shape[3]
        n = x.shape[0] * area
        size = triton.next_power_of_2(x.shape[1])
        grid = (triton.cdiv(n, 64),)
        channel_kernel[grid](x, out, area, n, x.shape[1], BLOCK=64, CHANNELS=size)
        return out
