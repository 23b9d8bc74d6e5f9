# /// redteam
# problem = "softmax"
# devices = ["cuda"]
# what = "A block a row: maximum and sum over warps and through shared memory."
# ///
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

THREADS = 128
WARPS = THREADS // 32


@cute.jit
def over_block(value: cutlass.Float32, parts: cute.Tensor, combine: cutlass.Constexpr):
    """Return a value combined over all threads of the block."""
    thread, _, _ = cute.arch.thread_idx()
    value = cute.arch.warp_reduction(value, combine)
    if thread % 32 == 0:
        parts[thread // 32] = value
    cute.arch.sync_threads()
    value = parts[0]
    for w in cutlass.range_constexpr(1, WARPS):
        value = combine(value, parts[w])
    cute.arch.sync_threads()
    return value


@cute.kernel
def softmax_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    columns = x.shape[1]
    storage = cutlass.utils.SmemAllocator()
    parts = storage.allocate_tensor(cutlass.Float32, cute.make_layout(WARPS))
    top = -cutlass.Float32.inf
    for c in range(thread, columns, THREADS):
        top = cute.arch.fmax(top, x[row, c])
    top = over_block(top, parts, cute.arch.fmax)
    total = cutlass.Float32(0.0)
    for c in range(thread, columns, THREADS):
        total += cute.math.exp(x[row, c] - top)
    total = over_block(total, parts, lambda a, b: a + b)
    for c in range(thread, columns, THREADS):
        y[row, c] = cute.math.exp(x[row, c] - top) / total


@cute.jit
def softmax(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    softmax_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1), stream=stream)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = None

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t).mark_layout_dynamic() for t in (x, y)]
        if self.compiled is None:
            self.compiled = cute.compile(softmax, *arguments, stream)
        self.compiled(*arguments, stream)
        return y
