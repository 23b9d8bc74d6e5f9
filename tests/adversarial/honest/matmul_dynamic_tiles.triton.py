# /// redteam
# problem = "matmul"
# devices = ["cuda"]
# what = "Persistent programs take tiles by a counter, which the last of them sets back."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tiles_kernel(a, b, c, counters, M, N, K, B: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, B)
    tiles = tl.cdiv(M, B) * tiles_n
    tile = tl.atomic_add(counters, 1)
    while tile < tiles:
        rows = tile // tiles_n * B + tl.arange(0, B)
        columns = tile % tiles_n * B + tl.arange(0, B)
        total = tl.zeros((B, B), dtype=tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            left = tl.load(a + rows[:, None] * K + k[None, :])
            right = tl.load(b + k[:, None] * N + columns[None, :])
            total += tl.dot(left, right, input_precision="ieee")
        tl.store(c + rows[:, None] * N + columns[None, :], total)
        tile = tl.atomic_add(counters, 1)
    if tl.atomic_add(counters + 1, 1) == tl.num_programs(0) - 1:
        tl.atomic_xchg(counters, 0)
        tl.atomic_xchg(counters + 1, 0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.counters = None

    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        if self.counters is None:
            self.counters = torch.zeros(2, dtype=torch.int32, device=x.device)
        out = torch.empty(m, n, device=x.device)
        tiles_kernel[(8,)](x, y, out, self.counters, m, n, k, B=64, BK=32)
        return out
