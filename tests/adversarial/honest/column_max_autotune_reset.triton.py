# /// redteam
# problem = "column_max"
# devices = ["cpu", "cuda"]
# style = "autotune_reset"
# what = "Lets the autotuner restore what its trials change."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"ROWS": 64}), triton.Config({"ROWS": 128})],
    key=["rows"],
    restore_value=["out_ptr"],
)
@triton.jit
def column_max_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    places = x_ptr + row[:, None] * columns + column[None, :]
    x = tl.load(places, mask=mask, other=float("-inf"))
    tl.atomic_max(out_ptr + column, tl.max(x, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.full((columns,), float("-inf"), device=x.device, dtype=x.dtype)
        wide = triton.cdiv(columns, 128)
        column_max_kernel[lambda meta: (triton.cdiv(rows, meta["ROWS"]), wide)](
            x, out, rows, columns, COLUMNS=128
        )
        return out
