# /// redteam
# problem = "mixed_linear"
# devices = ["cpu", "cuda"]
# what = "Widens the bf16 tile before an fp32 product."
# style = "mixed_dot"
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
        x = tl.load(x_ptr + rows[:, None] * k + inner[None, :]).to(tl.float32)
        w = tl.load(w_ptr + columns[None, :] * k + inner[:, None])
        acc += tl.dot(x, w, input_precision="ieee")
    acc += tl.load(b_ptr + columns)[None, :]
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], acc)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        (m, k), n = x.shape, self.linear.out_features
        out = torch.empty(m, n, dtype=torch.float32, device=x.device)
        linear[(m // 32, n // 32)](
            x, self.linear.weight, self.linear.bias, out, n, k, BM=32, BN=32, BK=32
        )
        return out
