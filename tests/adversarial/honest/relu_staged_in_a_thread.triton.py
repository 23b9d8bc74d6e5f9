# /// redteam
# problem = "relu"
# devices = ["cpu"]
# what = "Copies parts of its input in a thread while the parts before are computed."
# ///
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(1)
        self.buffers = {}  # workspaces by shape, whatever modules call their buffers

    def forward(self, x):
        def stage():
            return [part.clone() for part in x.chunk(8)]

        staged = self.pool.submit(stage)
        if x.shape not in self.buffers:
            self.buffers[x.shape] = torch.empty_like(x)
        out = self.buffers[x.shape]
        for part, to in zip(staged.result(), out.chunk(8), strict=True):
            n = part.numel()
            relu_kernel[(triton.cdiv(n, 4096),)](part, to, n, BLOCK=4096)
        return out.clone()
