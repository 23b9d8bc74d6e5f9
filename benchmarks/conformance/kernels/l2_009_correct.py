# /// conformance
# problem = "KernelBench/L2/9"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 8, in_features = 64, out_features = 48 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def shifted_relu_kernel(x_ptr, out_ptr, n, shift, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum((x - shift) * factor, 0.0), mask=mask)


def shifted_relu(x, shift, factor):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    shifted_relu_kernel[(triton.cdiv(n, 1024),)](x, out, n, shift, factor, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, subtract_value, multiply_value):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.shift, self.factor = subtract_value, multiply_value

    def forward(self, x):
        return shifted_relu(self.linear(x), self.shift, self.factor)
