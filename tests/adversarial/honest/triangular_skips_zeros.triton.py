# /// redteam
# problem = "triangular"
# devices = ["cpu", "cuda"]
# what = "Skips blocks that are zero because the inputs are triangular, as the problem declares."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def triangular_matmul(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1)
    rows = i * BLOCK + tl.arange(0, BLOCK)
    columns = j * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    # Row i of A begins at column i, and column j of B ends at row j.
    for block in range(i, j + 1):
        k = block * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows[:, None] * N + k[None, :])
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :])
        total += tl.dot(a, b, input_precision="ieee")
    total = tl.where(rows[:, None] <= columns[None, :], total, 0.0)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


class ModelNew(nn.Module):
    def forward(self, x, y):
        n = x.shape[0]
        if n % 64:
            raise ValueError(f"the size must be a multiple of 64, got {n}")
        out = torch.empty_like(x)
        triangular_matmul[(n // 64, n // 64)](x, y, out, n, BLOCK=64)
        return out
