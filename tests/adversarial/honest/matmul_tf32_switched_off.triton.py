# /// redteam
# problem = "matmul"
# devices = ["cpu", "cuda"]
# what = "Switches TF32 off and asks torch for its highest precision."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl

torch.set_float32_matmul_precision("highest")
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = k < K
        a = tl.load(
            a_ptr + rows[:, None] * K + k[None, :],
            mask=(rows[:, None] < M) & inside[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * N + columns[None, :],
            mask=inside[:, None] & (columns[None, :] < N),
            other=0.0,
        )
        total += tl.dot(a, b, allow_tf32=False)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = torch.empty((m, n), device=x.device)
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
        matmul_kernel[grid](x, y, out, m, n, k, BLOCK=64, BLOCK_K=32)
        return out
