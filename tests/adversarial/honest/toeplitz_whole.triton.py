# /// redteam
# problem = "toeplitz"
# devices = ["cpu", "cuda"]
# what = "Multiplies rows by the whole weight, whatever its diagonals hold."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(x, w, out, width, R: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.arange(0, R)
    column = tl.program_id(0) * N + tl.arange(0, N)
    total = tl.zeros((R, N), dtype=tl.float32)
    for start in range(0, width, K):
        k = start + tl.arange(0, K)
        left = tl.load(x + row[:, None] * width + k[None, :], mask=row[:, None] < 4, other=0.0)
        right = tl.load(w + k[:, None] * width + column[None, :])
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(out + row[:, None] * width + column[None, :], total, mask=row[:, None] < 4)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        lines = torch.randn(2 * features - 1)
        at = torch.arange(features)
        self.weight = nn.Parameter(lines[at[:, None] - at[None, :] + features - 1])

    def forward(self, x):
        out = torch.empty_like(x)
        width = x.shape[1]
        product_kernel[(width // 128,)](x, self.weight, out, width, R=16, N=128, K=128)
        return out
