import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

THREADS, WIDTH = 256, 8
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
    storage = cutlass.utils.SmemAllocator()
    parts = storage.allocate_tensor(cutlass.Float32, cute.make_layout(WARPS))
    line, out = (cute.zipped_divide(t[(row, None)], (WIDTH,)) for t in (x, y))
    count = cute.size(line, mode=[1]) // THREADS
    values = cute.make_rmem_tensor((WIDTH, count), cutlass.Float32)
    top = -cutlass.Float32.inf
    for i in cutlass.range_constexpr(count):
        values[(None, i)].store(line[(None, i * THREADS + thread)].load().to(cutlass.Float32))
        for j in cutlass.range_constexpr(WIDTH):
            top = cute.arch.fmax(top, values[j, i])
    top = over_block(top, parts, cute.arch.fmax)
    total = cutlass.Float32(0.0)
    for i in cutlass.range_constexpr(count):
        for j in cutlass.range_constexpr(WIDTH):
            values[j, i] = cute.math.exp(values[j, i] - top)
            total += values[j, i]
    total = over_block(total, parts, lambda a, b: a + b)
    for i in cutlass.range_constexpr(count):
        result = values[(None, i)].load() / total
        out[(None, i * THREADS + thread)].store(result.to(cutlass.Float16))


@cute.jit
def softmax(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    softmax_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1), stream=stream)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = {}

    def forward(self, x):
        x = x.contiguous()
        assert x.shape[1] % (THREADS * WIDTH) == 0
        y = torch.empty_like(x)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t, assumed_align=16) for t in (x, y)]
        if x.shape not in self.compiled:
            self.compiled[x.shape] = cute.compile(softmax, *arguments, stream)
        self.compiled[x.shape](*arguments, stream)
        return y
