import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

TILE_M, TILE_N, TILE_K, WIDTH = 128, 128, 32, 8


@cute.kernel
def linear_gelu_kernel(
    a: cute.Tensor, b: cute.Tensor, bias: cute.Tensor, c: cute.Tensor, tiled_mma: cute.TiledMma
):
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
        for i in cutlass.range_constexpr(TILE_M * TILE_K // (128 * WIDTH)):
            at = i * 128 + thread  # a vector of eight values
            place, part_of = at // (TILE_K // WIDTH), at % (TILE_K // WIDTH)
            for source, target in ((tiles_a, left), (tiles_b, right)):
                line = cute.zipped_divide(source[(place, None, tile)], (WIDTH,))
                kept = cute.zipped_divide(target[(place, None)], (WIDTH,))
                kept[(None, part_of)].store(line[(None, part_of)].load())
        cute.arch.sync_threads()
        cute.autovec_copy(left_part, left_regs)
        cute.autovec_copy(right_part, right_regs)
        cute.gemm(tiled_mma, total, left_regs, right_regs, total)
        cute.arch.sync_threads()
    bias_part = part.partition_C(
        cute.local_tile(
            cute.make_tensor(bias.iterator, cute.make_layout(c.shape, stride=(0, 1))),
            (TILE_M, TILE_N),
            (bm, bn),
        )
    )
    offsets = cute.make_fragment_like(total, cutlass.Float16)
    cute.autovec_copy(bias_part, offsets)
    value = total.load() + offsets.load().to(cutlass.Float32)
    value = 0.5 * value * (1.0 + cute.math.erf(value * 0.7071067811865476))
    rounded = cute.make_fragment_like(total, cutlass.Float16)
    rounded.store(value.to(cutlass.Float16))
    cute.autovec_copy(rounded, out_part)


@cute.jit
def linear_gelu(
    a: cute.Tensor, b: cute.Tensor, bias: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream
):
    instruction = cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    tiled_mma = cute.make_tiled_mma(
        instruction, cute.make_layout((2, 2, 1)), permutation_mnk=(32, 32, 16)
    )
    grid = (c.shape[0] // TILE_M, c.shape[1] // TILE_N, 1)
    linear_gelu_kernel(a, b, bias, c, tiled_mma).launch(grid=grid, block=(128, 1, 1), stream=stream)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.float16)
        self.compiled = {}

    def forward(self, x):
        x = x.contiguous()
        weight, bias = self.linear.weight.detach(), self.linear.bias.detach()
        assert x.shape[0] % TILE_M == weight.shape[0] % TILE_N == x.shape[1] % TILE_K == 0
        out = torch.empty(x.shape[0], weight.shape[0], device=x.device, dtype=x.dtype)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t, assumed_align=16) for t in (x, weight, bias, out)]
        if x.shape not in self.compiled:
            self.compiled[x.shape] = cute.compile(linear_gelu, *arguments, stream)
        self.compiled[x.shape](*arguments, stream)
        return out
