# /// redteam
# problem = "matmul"
# devices = ["cuda"]
# what = "Autotunes the tiles of a matrix product and prunes some of them."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": 32}, num_warps=4, num_stages=stages)
    for bm in (32, 64)
    for bn in (32, 64)
    for stages in (2, 3)
]


def prune(configs, arguments, **kwargs):
    return [c for c in configs if c.kwargs["BM"] == c.kwargs["BN"]]


@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": prune}
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(
            a_ptr + rows[:, None] * K + (k + inner)[None, :],
            mask=(rows[:, None] < M) & ((k + inner)[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + (k + inner)[:, None] * N + columns[None, :],
            mask=((k + inner)[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total += tl.dot(a, b, input_precision="ieee")
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = torch.empty((m, n), device=x.device, dtype=x.dtype)
        matmul_kernel[lambda c: (triton.cdiv(m, c["BM"]), triton.cdiv(n, c["BN"]))](
            x, y, out, m, n, k
        )
        return out
