# /// conformance
# problem = "KernelBench/L1/36"
# language = "triton"
# outcome = "correct"
# sizes = { batch_size = 8, dim1 = 128, dim2 = 128 }
# cpu_sizes = { batch_size = 1, features = 16, dim1 = 8, dim2 = 9 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_kernel(x_ptr, out_ptr, area, n, eps, BLOCK: tl.constexpr, CHANNELS: tl.constexpr):
    pixels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, CHANNELS)
    first = pixels // area * area * CHANNELS + pixels % area
    places = first[:, None] + channel[None, :] * area
    mask = pixels[:, None] < n
    x = tl.load(x_ptr + places, mask=mask, other=0.0)
    mean = tl.sum(x * x, axis=1) / CHANNELS
    tl.store(out_ptr + places, x / tl.sqrt(mean + eps)[:, None], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        out = torch.empty_like(x)
        area = x[0, 0].numel()
        n = x.shape[0] * area
        grid = (triton.cdiv(n, 64),)
        rms_kernel[grid](x, out, area, n, self.eps, BLOCK=64, CHANNELS=x.shape[1])
        return out
