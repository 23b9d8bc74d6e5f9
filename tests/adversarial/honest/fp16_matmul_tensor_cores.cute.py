# /// redteam
# problem = "fp16_matmul"
# devices = ["cuda"]
# what = "A warp multiplies 16 by 8 tiles on the tensor cores, its fragments loaded by hand."
# ///
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

TILE_M, TILE_N, TILE_K = 64, 64, 32


@cute.kernel
def matmul_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, tiled_mma: cute.TiledMma):
    thread, _, _ = cute.arch.thread_idx()
    bm, bn, _ = cute.arch.block_idx()
    storage = cutlass.utils.SmemAllocator()
    left = storage.allocate_tensor(
        cutlass.Float16, cute.make_layout((TILE_M, TILE_K), stride=(TILE_K + 8, 1)), 16
    )
    right = storage.allocate_tensor(
        cutlass.Float16, cute.make_layout((TILE_N, TILE_K), stride=(TILE_K + 8, 1)), 16
    )
    tiles_a = cute.local_tile(a, (TILE_M, TILE_K), (bm, None))
    tiles_b = cute.local_tile(b, (TILE_N, TILE_K), (bn, None))
    tile_c = cute.local_tile(c, (TILE_M, TILE_N), (bm, bn))
    part = tiled_mma.get_slice(thread)
    left_part, right_part = part.partition_A(left), part.partition_B(right)
    out_part = part.partition_C(tile_c)
    left_regs = tiled_mma.make_fragment_A(left_part)
    right_regs = tiled_mma.make_fragment_B(right_part)
    total = tiled_mma.make_fragment_C(out_part)
    total.fill(0.0)
    for tile in range(cute.size(tiles_a, mode=[2])):
        for i in cutlass.range_constexpr(TILE_M * TILE_K // 128):
            at = i * 128 + thread
            left[at // TILE_K, at % TILE_K] = tiles_a[at // TILE_K, at % TILE_K, tile]
        for i in cutlass.range_constexpr(TILE_N * TILE_K // 128):
            at = i * 128 + thread
            right[at // TILE_K, at % TILE_K] = tiles_b[at // TILE_K, at % TILE_K, tile]
        cute.arch.sync_threads()
        cute.autovec_copy(left_part, left_regs)
        cute.autovec_copy(right_part, right_regs)
        cute.gemm(tiled_mma, total, left_regs, right_regs, total)
        cute.arch.sync_threads()
    rounded = cute.make_fragment_like(total, cutlass.Float16)
    rounded.store(total.load().to(cutlass.Float16))
    cute.autovec_copy(rounded, out_part)


@cute.jit
def matmul(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
    instruction = cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    tiled_mma = cute.make_tiled_mma(
        instruction, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, 16)
    )
    grid = (c.shape[0] // TILE_M, c.shape[1] // TILE_N, 1)
    matmul_kernel(a, b, c, tiled_mma).launch(grid=grid, block=(128, 1, 1), stream=stream)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = {}

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty(x.shape[0], y.shape[0], device=x.device, dtype=x.dtype)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t, assumed_align=16) for t in (x, y, out)]
        key = x.shape, y.shape
        if key not in self.compiled:
            self.compiled[key] = cute.compile(matmul, *arguments, stream)
        self.compiled[key](*arguments, stream)
        return out
