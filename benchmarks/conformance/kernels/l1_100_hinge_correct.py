# /// conformance
# problem = "KernelBench/L1/100"
# language = "triton"
# outcome = "correct"
# sizes = { batch_size = 4096, input_shape = [4096] }
# cpu_sizes = { batch_size = 60, input_shape = [60] }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_kernel(p_ptr, t_ptr, columns, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    p = tl.load(p_ptr + offsets, mask=mask, other=0.0)
    t = tl.load(t_ptr + offsets % columns, mask=mask, other=0.0)
    value = tl.maximum(1.0 - p * t, 0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.where(mask, value, 0.0), axis=0))


@triton.jit
def total_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0) * factor)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, predictions, targets):
        n = predictions.numel()
        blocks = triton.cdiv(n, 1024)
        partial = torch.empty(blocks, device=predictions.device)
        out = torch.empty((), device=predictions.device)
        partial_kernel[(blocks,)](
            predictions, targets, predictions.shape[1], partial, n, BLOCK=1024
        )
        total_kernel[(1,)](partial, out, blocks, 1 / n, BLOCK=1024)
        return out
