# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Has a pool of one thread, made in __init__, launch the kernel on its stream."
# ///
import contextlib
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def relu(x, stream):
    with on(stream):
        return launched(x)


def on(stream):
    """A new thread's current stream is the default one, not that of the thread that asks."""
    return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)


def launched(x):
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 8192),)](x, y, x.numel(), BLOCK=8192)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(int).result()

    def forward(self, x):
        stream = torch.cuda.current_stream() if x.is_cuda else None
        return self.pool.submit(relu, x, stream).result()
