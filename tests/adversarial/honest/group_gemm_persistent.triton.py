# /// redteam
# problem = "group_gemm"
# devices = ["cpu", "cuda"]
# style = "pointer_tables"
# what = "Multiplies a group of matrices given by tables of addresses."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_kernel(
    a_table, b_table, c_table, sizes, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile = tl.program_id(0)
    first = 0
    for group in range(groups):
        m = tl.load(sizes + group * 3)
        n = tl.load(sizes + group * 3 + 1)
        k = tl.load(sizes + group * 3 + 2)
        across = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * across
        while tile >= first and tile < first + tiles:
            a_ptr = tl.load(a_table + group).to(tl.pointer_type(tl.float32))
            b_ptr = tl.load(b_table + group).to(tl.pointer_type(tl.float32))
            c_ptr = tl.load(c_table + group).to(tl.pointer_type(tl.float32))
            rows = (tile - first) // across * BM + tl.arange(0, BM)
            columns = (tile - first) % across * BN + tl.arange(0, BN)
            total = tl.zeros((BM, BN), dtype=tl.float32)
            for start in range(0, k, BK):
                inner = start + tl.arange(0, BK)
                a = tl.load(
                    a_ptr + rows[:, None] * k + inner[None, :],
                    mask=(rows[:, None] < m) & (inner[None, :] < k),
                    other=0.0,
                )
                b = tl.load(
                    b_ptr + inner[:, None] * n + columns[None, :],
                    mask=(inner[:, None] < k) & (columns[None, :] < n),
                    other=0.0,
                )
                total += tl.dot(a, b, input_precision="ieee")
            mask = (rows[:, None] < m) & (columns[None, :] < n)
            tl.store(c_ptr + rows[:, None] * n + columns[None, :], total, mask=mask)
            tile += tl.num_programs(0)
        first += tiles


class ModelNew(nn.Module):
    def forward(self, a, b, c, x, y, z):
        left, right = [a, b, c], [x, y, z]
        shapes = [(u.shape[0], v.shape[1], u.shape[1]) for u, v in zip(left, right, strict=True)]
        outputs = [torch.empty((m, n), device=a.device, dtype=a.dtype) for m, n, _ in shapes]

        def table(tensors):
            return torch.tensor([t.data_ptr() for t in tensors], device=a.device)

        sizes = torch.tensor(shapes, dtype=torch.int32, device=a.device)
        group_kernel[(8,)](table(left), table(right), table(outputs), sizes, 3, BM=32, BN=32, BK=32)
        return tuple(outputs)
