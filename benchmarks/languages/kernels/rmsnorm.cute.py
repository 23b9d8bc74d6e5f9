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
def rmsnorm_kernel(x: cute.Tensor, weight: cute.Tensor, y: cute.Tensor, eps: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    storage = cutlass.utils.SmemAllocator()
    parts = storage.allocate_tensor(cutlass.Float32, cute.make_layout(WARPS))
    line, out = (cute.zipped_divide(t[(row, None)], (WIDTH,)) for t in (x, y))
    factors = cute.zipped_divide(weight, (WIDTH,))
    count = cute.size(line, mode=[1]) // THREADS
    values = cute.make_rmem_tensor((WIDTH, count), cutlass.Float32)
    total = cutlass.Float32(0.0)
    for i in cutlass.range_constexpr(count):
        values[(None, i)].store(line[(None, i * THREADS + thread)].load().to(cutlass.Float32))
        for j in cutlass.range_constexpr(WIDTH):
            total += values[j, i] * values[j, i]
    total = over_block(total, parts, lambda a, b: a + b)
    scale = 1.0 / cute.math.sqrt(total / x.shape[1] + eps)
    for i in cutlass.range_constexpr(count):
        factor = cute.make_rmem_tensor(WIDTH, cutlass.Float32)
        factor.store(factors[(None, i * THREADS + thread)].load().to(cutlass.Float32))
        result = values[(None, i)].load() * scale * factor.load()
        out[(None, i * THREADS + thread)].store(result.to(cutlass.Float16))


@cute.jit
def rmsnorm(
    x: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    eps: cutlass.Float32,
    stream: cuda.CUstream,
):
    rmsnorm_kernel(x, weight, y, eps).launch(
        grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1), stream=stream
    )


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features, dtype=torch.float16) + 0.5)
        self.compiled = {}

    def forward(self, x):
        x = x.contiguous()
        assert x.shape[1] % (THREADS * WIDTH) == 0
        y = torch.empty_like(x)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        tensors = (x, self.weight.detach(), y)
        arguments = [from_dlpack(t, assumed_align=16) for t in tensors]
        eps = cutlass.Float32(self.eps)
        if x.shape not in self.compiled:
            self.compiled[x.shape] = cute.compile(rmsnorm, *arguments, eps, stream)
        self.compiled[x.shape](*arguments, eps, stream)
        return y
