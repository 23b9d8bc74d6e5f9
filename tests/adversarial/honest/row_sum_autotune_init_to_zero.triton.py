# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# style = "autotune_hook"
# what = "Each config brings a hook that a function makes."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def init_to_zero(name):
    return lambda arguments: arguments[name].zero_()


CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=4, pre_hook=init_to_zero("out_ptr"))
    for block in (512, 1024)
]


@triton.autotune(configs=CONFIGS, key=["columns"])
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
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        row_sum_kernel[lambda meta: (triton.cdiv(rows, 32), triton.cdiv(columns, meta["BLOCK"]))](
            x, out, rows, columns, ROWS=32
        )
        return out
