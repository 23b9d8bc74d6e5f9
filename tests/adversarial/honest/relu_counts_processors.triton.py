# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "harmless_modules"
# what = "Asks for the number of processors to choose its grid."
# ///
import multiprocessing
import os

import torch
import torch.nn as nn
import triton
import triton.language as tl

WORKERS = min(8, os.cpu_count() or 1, multiprocessing.cpu_count())


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at, mask=at < n), 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(WORKERS,)](x, out, x.numel(), BLOCK=4096)
        return out
