# /// conformance
# problem = "KernelBench/L1/12"
# language = "triton"
# outcome = "no_output"
# cpu_sizes = { M = 96, N = 64 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_rows(a_ptr, b_ptr, out_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    scale = tl.load(a_ptr + offsets // columns, mask=mask)
    value = tl.load(b_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, scale * value, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        out = torch.empty_like(B)
        n = B.numel()
        scale_rows[(triton.cdiv(n, 1024),)](A, B, out, n, B.shape[1], BLOCK=1024)
        return None
