# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# style = "autotune_hook"
# what = "Clears its output in a hook, since it adds to it."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def clear_output(arguments, reset_only=False):
    arguments["out_ptr"].zero_()


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})],
    key=["columns"],
    pre_hook=clear_output,
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

        def grid(meta):
            return triton.cdiv(rows, 32), triton.cdiv(columns, meta["BLOCK"])

        row_sum_kernel[grid](x, out, rows, columns, ROWS=32)
        return out
