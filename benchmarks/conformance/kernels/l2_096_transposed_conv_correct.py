# /// conformance
# problem = "KernelBench/L2/96"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 1, depth = 4, height = 6, width = 6 }
# ///

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * factor, mask=mask)


def scale(x, factor):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    scale_kernel[(triton.cdiv(n, 1024),)](x, out, n, factor, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(
        self, in_channels, out_channels, kernel_size, stride, padding, scale, maxpool_kernel_size
    ):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding
        )
        self.scale, self.pool = scale, maxpool_kernel_size

    def forward(self, x):
        x = scale(self.conv_transpose(x), self.scale)
        x = F.max_pool3d(x, self.pool)
        return x.mean(dim=(2, 3, 4), keepdim=True).clamp(0, 1)
