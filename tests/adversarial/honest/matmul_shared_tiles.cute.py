# /// redteam
# problem = "matmul"
# devices = ["cuda"]
# what = "Tiles of 16 by 16 in shared memory, one product element a thread."
# ///
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

TILE = 16


@cute.kernel
def matmul_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    storage = cutlass.utils.SmemAllocator()
    tile = cute.make_layout((TILE, TILE), stride=(TILE + 1, 1))
    left = storage.allocate_tensor(cutlass.Float32, tile)
    right = storage.allocate_tensor(cutlass.Float32, tile)
    row, column = by * TILE + ty, bx * TILE + tx
    total = cutlass.Float32(0.0)
    for start in range(0, k, TILE):
        ka, kb = start + tx, start + ty
        left[ty, tx] = 0.0
        right[ty, tx] = 0.0
        if row < m and ka < k:
            left[ty, tx] = a[row, ka]
        if kb < k and column < n:
            right[ty, tx] = b[kb, column]
        cute.arch.sync_threads()
        for i in cutlass.range_constexpr(TILE):
            total += left[ty, i] * right[i, tx]
        cute.arch.sync_threads()
    if row < m and column < n:
        c[row, column] = total


@cute.jit
def matmul(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
    grid = (cute.ceil_div(c.shape[1], TILE), cute.ceil_div(c.shape[0], TILE), 1)
    matmul_kernel(a, b, c).launch(grid=grid, block=(TILE, TILE, 1), stream=stream)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = None

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty(x.shape[0], y.shape[1], device=x.device)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t).mark_layout_dynamic() for t in (x, y, out)]
        if self.compiled is None:
            self.compiled = cute.compile(matmul, *arguments, stream)
        self.compiled(*arguments, stream)
        return out
