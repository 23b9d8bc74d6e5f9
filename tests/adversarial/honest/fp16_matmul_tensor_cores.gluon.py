# /// redteam
# problem = "fp16_matmul"
# devices = ["cuda"]
# what = "Tiles in shared memory, multiplied by mma_v2 with operands from shared memory."
# ///
import torch
import torch.nn as nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2


@gluon.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    n,
    k,
    TILE_M: gl.constexpr,
    TILE_N: gl.constexpr,
    TILE_K: gl.constexpr,
):
    loads: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    sums: gl.constexpr = gl.NVMMADistributedLayout(
        version=[2, 0], warps_per_cta=[2, 2], instr_shape=[16, 8]
    )
    left_layout: gl.constexpr = gl.DotOperandLayout(0, sums, k_width=2)
    right_layout: gl.constexpr = gl.DotOperandLayout(1, sums, k_width=2)
    swizzled: gl.constexpr = gl.SwizzledSharedLayout(vec=8, per_phase=2, max_phase=4, order=[1, 0])
    row = gl.program_id(0) * TILE_M + gl.arange(0, TILE_M, layout=gl.SliceLayout(1, loads))
    other = gl.program_id(1) * TILE_N + gl.arange(0, TILE_N, layout=gl.SliceLayout(1, loads))
    inner = gl.arange(0, TILE_K, layout=gl.SliceLayout(0, loads))
    left = gl.allocate_shared_memory(gl.float16, [TILE_M, TILE_K], swizzled)
    right = gl.allocate_shared_memory(gl.float16, [TILE_N, TILE_K], swizzled)
    total = gl.zeros([TILE_M, TILE_N], gl.float32, layout=sums)
    for start in range(0, k, TILE_K):
        at = (start + inner)[None, :]
        left.store(gl.load(a_ptr + row[:, None] * k + at))
        right.store(gl.load(b_ptr + other[:, None] * k + at))
        x = left.load(left_layout)
        y = right.permute((1, 0)).load(right_layout)
        total = mma_v2(x, y, total)
    out_row = gl.program_id(0) * TILE_M + gl.arange(0, TILE_M, layout=gl.SliceLayout(1, sums))
    out_column = gl.program_id(1) * TILE_N + gl.arange(0, TILE_N, layout=gl.SliceLayout(0, sums))
    places = out_row[:, None] * n + out_column[None, :]
    gl.store(c_ptr + places, total.to(gl.float16))


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        (m, k), n = x.shape, y.shape[0]
        assert m % 64 == n % 64 == k % 32 == 0
        out = torch.empty(m, n, device=x.device, dtype=x.dtype)
        matmul_kernel[(m // 64, n // 64)](x, y, out, n, k, 64, 64, 32, num_warps=4)
        return out
