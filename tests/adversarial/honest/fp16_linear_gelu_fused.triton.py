# /// redteam
# problem = "fp16_linear_gelu"
# devices = ["cpu", "cuda"]
# what = "Multiplies halves with fp32 sums, adds the bias and applies GELU before rounding once."
# style = "half_dot"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_gelu(
    x_ptr, w_ptr, b_ptr, out_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, k, BK):
        inner = first + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * k + inner[None, :])
        w = tl.load(w_ptr + columns[None, :] * k + inner[:, None])
        acc += tl.dot(x, w, out_dtype=tl.float32)
    acc += tl.load(b_ptr + columns)[None, :].to(tl.float32)
    y = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], y.to(tl.float16))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.float16)

    def forward(self, x):
        (m, k), n = x.shape, self.linear.out_features
        out = torch.empty(m, n, dtype=x.dtype, device=x.device)
        linear_gelu[(m // 32, n // 32)](
            x, self.linear.weight, self.linear.bias, out, n, k, BM=32, BN=32, BK=64
        )
        return out
