# /// redteam
# problem = "heavy_matmul"
# devices = ["cpu", "cuda"]
# what = "Orders its programs for the cache and precomputes nothing."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def grouped_matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr
):
    program = tl.program_id(0)
    tall, wide = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    in_group = GROUP * wide
    first = program // in_group * GROUP
    size = min(tall - first, GROUP)
    i = first + program % in_group % size
    j = program % in_group // size
    rows = i * BLOCK + tl.arange(0, BLOCK)
    columns = j * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + inner
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :])
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        assert m % 64 == 0 and n % 64 == 0 and k % 128 == 0
        out = torch.empty(m, n, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(m, 64) * triton.cdiv(n, 64),)
        grouped_matmul[grid](x, y, out, m, n, k, BLOCK=64, BLOCK_K=128, GROUP=4, num_stages=2)
        return out
