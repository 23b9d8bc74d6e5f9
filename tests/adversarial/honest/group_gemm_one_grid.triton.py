# /// redteam
# problem = "group_gemm"
# devices = ["cpu", "cuda"]
# style = "pointer_tables"
# what = "Gives each matrix of a group a plane of the grid."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def address(table, index):
    return tl.load(table + index).to(tl.pointer_type(tl.float32))


@triton.jit
def group_kernel(table, sizes, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    group = tl.program_id(2)
    m = tl.load(sizes + group * 3)
    n = tl.load(sizes + group * 3 + 1)
    k = tl.load(sizes + group * 3 + 2)
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    if (row < m) & (column < n):
        a_ptr = address(table, group * 3)
        b_ptr = address(table, group * 3 + 1)
        c_ptr = address(table, group * 3 + 2)
        rows, columns = row + tl.arange(0, BM)[:, None], column + tl.arange(0, BN)[None, :]
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, k, BK):
            down, across = start + tl.arange(0, BK)[:, None], start + tl.arange(0, BK)[None, :]
            a = tl.load(a_ptr + rows * k + across, mask=(rows < m) & (across < k), other=0.0)
            b = tl.load(b_ptr + down * n + columns, mask=(down < k) & (columns < n), other=0.0)
            total = tl.dot(a, b, total, input_precision="ieee")
        tl.store(c_ptr + rows * n + columns, total, mask=(rows < m) & (columns < n))


class ModelNew(nn.Module):
    def forward(self, a, b, c, x, y, z):
        addresses, sizes, outputs = [], [], []
        for left, right in ((a, x), (b, y), (c, z)):
            (m, k), n = left.shape, right.shape[1]
            outputs.append(left.new_empty((m, n)))
            sizes += [m, n, k]
            addresses += [left.data_ptr(), right.data_ptr(), outputs[-1].data_ptr()]
        table = torch.tensor(addresses, dtype=torch.int64, device=a.device)
        shape = torch.tensor(sizes, dtype=torch.int32, device=a.device)
        tall, wide = max(sizes[0::3]), max(sizes[1::3])
        grid = (triton.cdiv(tall, 32), triton.cdiv(wide, 32), 3)
        group_kernel[grid](table, shape, BM=32, BN=32, BK=32)
        return tuple(outputs)
