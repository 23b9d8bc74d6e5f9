# /// conformance
# problem = "KernelBench/L2/63"
# language = "triton"
# outcome = "correct"
# cpu_sizes = { batch_size = 8, in_features = 64, out_features = 48 }
# ///

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def relu_scale_kernel(x_ptr, out_ptr, n, divisor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) / divisor, mask=mask)


def relu_scale(x, divisor):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    relu_scale_kernel[(triton.cdiv(n, 1024),)](x, out, n, divisor, BLOCK=1024)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(in_features)
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.divisor = divisor

    def forward(self, x):
        return relu_scale(F.linear(x, self.weight, self.bias), self.divisor)
