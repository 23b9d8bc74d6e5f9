# /// conformance
# problem = "KernelBench/L2/86"
# language = "triton"
# outcome = "wrong_values"
# cpu_sizes = { batch_size = 8, input_size = 64, output_size = 48 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, divisor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x / divisor, 0.0), mask=mask)


def relu(x, divisor):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    relu_kernel[(triton.cdiv(n, 1024),)](x, out, n, divisor, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, input_size, output_size, divisor):
        super().__init__()
        self.linear = nn.Linear(input_size, output_size)
        self.divisor = divisor

    def forward(self, x):
        return relu(self.linear(x), self.divisor)
