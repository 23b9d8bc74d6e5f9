# /// conformance
# problem = "KernelBench/L3/50"
# language = "triton"
# outcome = "wrong_values"
# cpu_sizes = { batch_size = 1, max_seqlen = 12, n_embd = 16, n_head = 2 }
# ///

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_relu_kernel(x_ptr, out_ptr, n, length, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    keep = offsets % length < length
    x = tl.load(x_ptr + offsets, mask=mask & keep, other=0.0)
    tl.store(out_ptr + offsets, tl.maximum(x * scale, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, n_embd, n_head, max_seqlen):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.heads = n_head

    def forward(self, x):
        batch, length, width = x.shape
        size = width // self.heads
        q, k, v = (
            part.view(batch, length, self.heads, size).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        scores = (q @ k.transpose(-2, -1)).contiguous()
        weights = torch.empty_like(scores)
        n = scores.numel()
        grid = (triton.cdiv(n, 1024),)
        masked_relu_kernel[grid](scores, weights, n, length, 1 / math.sqrt(size), BLOCK=1024)
        return (weights @ v).transpose(1, 2).reshape(batch, length, width)
