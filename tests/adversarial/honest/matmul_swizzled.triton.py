# /// redteam
# problem = "matmul"
# devices = ["cpu"]
# what = "tl.swizzle2d over tiles, heuristics for whole tiles."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.heuristics({"EVEN": lambda args: args["k"] % args["BK"] == 0})
@triton.jit
def product(
    x, y, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr
):
    i, j = tl.swizzle2d(
        tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 2
    )
    r = i * BM + tl.arange(0, BM)
    c = j * BN + tl.arange(0, BN)
    at = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, tl.cdiv(k, BK)):
        kk = start * BK + at
        a_mask, b_mask = (r < m)[:, None], (c < n)[None, :]
        if not EVEN:
            a_mask = a_mask & (kk < k)[None, :]
            b_mask = b_mask & (kk < k)[:, None]
        a = tl.load(x + r[:, None] * k + kk[None, :], mask=a_mask, other=0.0)
        b = tl.load(y + kk[:, None] * n + c[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(out + r[:, None] * n + c[None, :], acc, mask=(r < m)[:, None] & (c < n)[None, :])


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = torch.empty((m, n), device=x.device, dtype=x.dtype)
        grid = lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))  # noqa: E731
        product[grid](x, y, out, m, n, k, BM=32, BN=32, BK=32)
        return out
