# /// redteam
# problem = "matmul"
# devices = ["cpu", "cuda"]
# style = "dot_in_ieee"
# what = "Asks tl.dot for full fp32."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, c, M, N, K, T: tl.constexpr, P: tl.constexpr):
    rows = tl.program_id(0) * T + tl.arange(0, T)
    columns = tl.program_id(1) * T + tl.arange(0, T)
    acc = tl.zeros((T, T), dtype=tl.float32)
    for k in range(0, K, P):
        at = k + tl.arange(0, P)
        inside = (rows[:, None] < M) & (at[None, :] < K)
        left = tl.load(a + rows[:, None] * K + at[None, :], mask=inside, other=0.0)
        inside = (at[:, None] < K) & (columns[None, :] < N)
        right = tl.load(b + at[:, None] * N + columns[None, :], mask=inside, other=0.0)
        acc += tl.dot(left, right, input_precision="ieee")
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], acc, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty(M, N, dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        matmul_kernel[grid](a.contiguous(), b.contiguous(), c, M, N, K, T=64, P=32)
        return c
