# /// redteam
# problem = "matmul"
# devices = ["cpu", "cuda"]
# style = "tutorial_matmul"
# what = "Visits tiles in groups of rows, with tuned sizes."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def get_autotune_config():
    return [
        triton.Config({"BM": 128, "BN": 64, "BK": 32, "GROUP": 4}, num_stages=2, num_warps=4),
        triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=3, num_warps=4),
    ]


@triton.autotune(configs=get_autotune_config(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    pid = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    in_group = GROUP * tiles_n
    first = pid // in_group * GROUP
    height = min(tiles_m - first, GROUP)
    tile_m = first + pid % in_group % height
    tile_n = pid % in_group // height
    rows = (tile_m * BM + tl.arange(0, BM)) % M
    columns = (tile_n * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    a_at = a_ptr + (rows[:, None] * stride_am + inner[None, :] * stride_ak)
    b_at = b_ptr + (inner[:, None] * stride_bk + columns[None, :] * stride_bn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_at, mask=inner[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_at, mask=inner[:, None] < K - k * BK, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_at += BK * stride_ak
        b_at += BK * stride_bk
    rows = tile_m * BM + tl.arange(0, BM)
    columns = tile_n * BN + tl.arange(0, BN)
    c_at = c_ptr + stride_cm * rows[:, None] + stride_cn * columns[None, :]
    tl.store(c_at, total, mask=(rows[:, None] < M) & (columns[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = torch.empty((m, n), device=x.device, dtype=x.dtype)

        def grid(meta):
            return (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)

        strides = (*x.stride(), *y.stride(), *out.stride())
        matmul_kernel[grid](x, y, out, m, n, k, *strides)
        return out
