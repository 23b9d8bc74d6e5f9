# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# style = "autotune_reset"
# what = "Lets the autotuner clear the output that it adds to."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 1024})],
    key=["rows", "columns"],
    reset_to_zero=["out_ptr"],
)
@triton.jit
def row_sum_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    tl.atomic_add(out_ptr + row, tl.sum(x, axis=1), mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(rows, device=x.device, dtype=x.dtype)
        row_sum_kernel[lambda meta: (triton.cdiv(rows, 64), triton.cdiv(columns, meta["BLOCK"]))](
            x, out, rows, columns, ROWS=64
        )
        return out
