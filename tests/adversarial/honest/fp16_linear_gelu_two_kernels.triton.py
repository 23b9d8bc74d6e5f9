# /// redteam
# problem = "fp16_linear_gelu"
# devices = ["cpu", "cuda"]
# what = "Rounds the product to fp16 between two kernels, as the reference does."
# style = "half_dot"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear(
    x_ptr, w_ptr, b_ptr, out_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, k, BK):
        inner = first + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * k + inner[None, :])
        w = tl.load(w_ptr + columns[None, :] * k + inner[:, None])
        acc = tl.dot(x, w, acc)
    acc += tl.load(b_ptr + columns)[None, :]
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], acc.to(tl.float16))


@triton.jit
def gelu_in_place(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(x_ptr + at, y.to(tl.float16), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.float16)

    def forward(self, x):
        (m, k), n = x.shape, self.linear.out_features
        out = x.new_empty(m, n)
        linear[(m // 32, n // 32)](
            x, self.linear.weight, self.linear.bias, out, n, k, BM=32, BN=32, BK=64
        )
        gelu_in_place[(triton.cdiv(m * n, 2048),)](out, m * n, BLOCK=2048)
        return out
