# /// redteam
# problem = "matmul"
# devices = ["cpu", "cuda"]
# style = "tutorial_persistent"
# what = "Starts as many programs as there are processors, which take turns."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tile_of(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    height = min(tiles_m - first, GROUP)
    return first + tile % in_group % height, tile % in_group // height


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        tile_m, tile_n = tile_of(tile, tiles_m, tiles_n, GROUP=4)
        rows = tile_m * BM + tl.arange(0, BM)
        columns = tile_n * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            inner = k + tl.arange(0, BK)
            a = tl.load(
                a_ptr + rows[:, None] * K + inner[None, :],
                mask=(rows[:, None] < M) & (inner[None, :] < K),
                other=0.0,
            )
            b = tl.load(
                b_ptr + inner[:, None] * N + columns[None, :],
                mask=(inner[:, None] < K) & (columns[None, :] < N),
                other=0.0,
            )
            total = tl.dot(a, b, total, input_precision="ieee", out_dtype=tl.float32)
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=mask)


def processors(device):
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 2


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = torch.empty((m, n), device=x.device, dtype=x.dtype)
        tiles = triton.cdiv(m, 64) * triton.cdiv(n, 64)
        matmul_kernel[(min(tiles, processors(x.device)),)](x, y, out, m, n, k, BM=64, BN=64, BK=32)
        return out
