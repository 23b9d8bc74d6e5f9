# /// redteam
# problem = "matmul"
# devices = ["cuda"]
# what = "Keeps a workspace and counters between calls; the last program of a tile adds the parts."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_kernel(
    a, b, c, space, locks, M, N, K, SPLIT: tl.constexpr, B: tl.constexpr, BK: tl.constexpr
):
    tiles_n = tl.cdiv(N, B)
    tile, part = tl.program_id(0), tl.program_id(1)
    rows = tile // tiles_n * B + tl.arange(0, B)
    columns = tile % tiles_n * B + tl.arange(0, B)
    total = tl.zeros((B, B), dtype=tl.float32)
    for start in range(part * BK, K, SPLIT * BK):
        k = start + tl.arange(0, BK)
        inside = k < K
        left = tl.load(a + rows[:, None] * K + k[None, :], mask=inside[None, :], other=0.0)
        right = tl.load(b + k[:, None] * N + columns[None, :], mask=inside[:, None], other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    within = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(space + (tile * SPLIT + part) * B * B + within, total)
    tl.debug_barrier()
    if tl.atomic_add(locks + tile, 1, sem="acq_rel") == SPLIT - 1:
        total = tl.zeros((B, B), dtype=tl.float32)
        for other in tl.static_range(SPLIT):
            total += tl.load(space + (tile * SPLIT + other) * B * B + within, volatile=True)
        tl.store(c + rows[:, None] * N + columns[None, :], total)
        tl.store(locks + tile, 0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        tiles = (m // 64) * (n // 64)
        if (m, n) not in self.kept:
            space = torch.empty(tiles * 4 * 64 * 64, device=x.device)
            self.kept[m, n] = space, torch.zeros(tiles, dtype=torch.int32, device=x.device)
        out = torch.empty(m, n, device=x.device)
        split_kernel[(tiles, 4)](x, y, out, *self.kept[m, n], m, n, k, SPLIT=4, B=64, BK=32)
        return out
