# /// conformance
# problem = "KernelBench/L2/28"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 8, in_features = 64, out_features = 48 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def residual_kernel(x_ptr, y_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    value = (centred / tl.sqrt(variance + eps) + y) * y
    tl.store(out_ptr + row * columns + offsets, value, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, eps=1e-5, momentum=0.1):
        super().__init__()
        self.bmm = nn.Linear(in_features, out_features)
        self.eps = eps

    def forward(self, x, y):
        x = self.bmm(x)
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        residual_kernel[(x.shape[0],)](x, y, out, x.shape[1], self.eps, BLOCK=block)
        return out
