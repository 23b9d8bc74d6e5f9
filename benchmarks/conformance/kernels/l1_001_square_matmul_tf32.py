# /// conformance
# problem = "KernelBench/L1/1"
# language = "triton"
# outcome = "either"
# cpu = false
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    a_row,
    a_column,
    b_row,
    b_column,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + inner
        a = tl.load(
            a_ptr + rows[:, None] * a_row + k[None, :] * a_column,
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * b_row + columns[None, :] * b_column,
            mask=(k[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total += tl.dot(a, b, input_precision="tf32")
    tl.store(
        out_ptr + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    strides = (*a.stride(), *b.stride())
    matmul_kernel[grid](a, b, out, M, N, K, *strides, BM=64, BN=64, BK=32)
    return out


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return matmul(A, B)
