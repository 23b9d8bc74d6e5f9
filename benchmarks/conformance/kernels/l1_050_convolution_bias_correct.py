# /// conformance
# problem = "KernelBench/L1/50"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 1 }
# cpu = false
# ///

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def add_channel_bias(x_ptr, bias_ptr, out_ptr, n, area, channels, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    bias = tl.load(bias_ptr + offsets // area % channels, mask=mask)
    tl.store(out_ptr + offsets, x + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, kernel_size=11, stride=4, padding=2)

    def forward(self, x):
        x = F.conv2d(x, self.conv1.weight, None, stride=4, padding=2).contiguous()
        out = torch.empty_like(x)
        n, area = x.numel(), x.shape[2] * x.shape[3]
        grid = (triton.cdiv(n, 1024),)
        add_channel_bias[grid](x, self.conv1.bias, out, n, area, x.shape[1], BLOCK=1024)
        return out
