# /// redteam
# problem = "bf16_silu"
# devices = ["cuda"]
# what = "SiLU of eight bf16 values a thread, loaded as one vector."
# ///
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

THREADS, WIDTH = 128, 8


@cute.kernel
def silu_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < cute.size(x, mode=[1]):
        value = x[(None, i)].load().to(cutlass.Float32)
        y[(None, i)].store((value / (1.0 + cute.math.exp(-value))).to(cutlass.BFloat16))


@cute.jit
def silu(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    x, y = (cute.zipped_divide(t, (WIDTH,)) for t in (x, y))
    groups = cute.size(x, mode=[1])
    silu_kernel(x, y).launch(
        grid=(cute.ceil_div(groups, THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream
    )


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = {}

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t.view(-1), assumed_align=16) for t in (x, y)]
        if x.shape not in self.compiled:
            self.compiled[x.shape] = cute.compile(silu, *arguments, stream)
        self.compiled[x.shape](*arguments, stream)
        return y
