# /// conformance
# problem = "KernelBench/L2/92"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 1, height = 10, width = 10 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def activate_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    t = 2.0 * tl.sigmoid(2.0 * x) - 1.0
    tl.store(out_ptr + offsets, t * tl.minimum(tl.maximum(t + 3.0, 0.0), 6.0) / 6.0, mask=mask)


def activate(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    activate_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups, eps=1e-5):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(groups, out_channels, eps=eps)

    def forward(self, x):
        x = self.conv(x)
        return torch.logsumexp(x + activate(self.group_norm(x)), dim=1, keepdim=True)
