# /// redteam
# problem = "heavy_chain"
# devices = ["cuda"]
# what = "Fuses twenty steps: honestly an order of magnitude faster."
# ///

import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def chain_kernel(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < n:
        value = cute.math.tanh(x[i] * 1.5 + 0.5) * 2.0 - 0.25
        value = 3.0 / (1.0 + cute.math.exp(-value)) - 1.0
        value = cute.math.sqrt(cute.arch.fmax(value, -value) + 0.125) * 1.25
        value = cute.math.sin(value)
        value = cute.math.exp(-(value * value + 0.75)) * 4.0 - 0.5
        y[i] = cute.arch.fmax(value, 0.0)


@cute.jit
def chain(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32, stream: cuda.CUstream):
    chain_kernel(x, y, n).launch(
        grid=(cute.ceil_div(n, THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream
    )


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = None

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t.view(-1)).mark_layout_dynamic() for t in (x, y)]
        n = cutlass.Int32(x.numel())
        if self.compiled is None:
            self.compiled = cute.compile(chain, *arguments, n, stream)
        self.compiled(*arguments, n, stream)
        return y
