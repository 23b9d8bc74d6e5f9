# /// redteam
# problem = "matmul"
# devices = ["cpu", "cuda"]
# what = "Splits the inner dimension and adds the parts with fp32 atomics, in any order."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_k_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, SPLIT: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(tl.program_id(2) * BLOCK_K, K, SPLIT * BLOCK_K):
        k = start + inner
        a = tl.load(
            a_ptr + rows[:, None] * K + k[None, :],
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * N + columns[None, :],
            mask=(k[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total += tl.dot(a, b, input_precision="ieee")
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(c_ptr + rows[:, None] * N + columns[None, :], total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = torch.zeros(m, n, device=x.device)
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64), 3)
        split_k_kernel[grid](x, y, out, m, n, k, SPLIT=3, BLOCK=64, BLOCK_K=32)
        return out
