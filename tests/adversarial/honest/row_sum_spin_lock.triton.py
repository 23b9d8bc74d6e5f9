# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# style = "atomics"
# what = "Guards each sum with a lock of compare and exchange."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(
    x_ptr, out_ptr, lock_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    group = tl.program_id(0)
    row = group * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    part = tl.sum(x, axis=1)
    while tl.atomic_cas(lock_ptr + group, 0, 1) == 1:
        pass
    part += tl.load(out_ptr + row, mask=row < rows, volatile=True)
    tl.store(out_ptr + row, part, mask=row < rows)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + group, 0)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(rows, device=x.device, dtype=x.dtype)
        locks = torch.zeros(triton.cdiv(rows, 64), device=x.device, dtype=torch.int32)
        grid = (triton.cdiv(rows, 64), triton.cdiv(columns, 512))
        row_sum_kernel[grid](x, out, locks, rows, columns, ROWS=64, BLOCK=512)
        return out
