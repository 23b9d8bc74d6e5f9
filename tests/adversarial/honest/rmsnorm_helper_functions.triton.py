# /// redteam
# problem = "rmsnorm"
# devices = ["cpu", "cuda"]
# what = "Splits the kernel into jitted helpers, some of which no Python code calls."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_square(x, columns):
    return tl.sum(x * x, axis=1) / columns


@triton.jit
def inverse_root(value, eps):
    return 1.0 / tl.sqrt(value + eps)


@triton.jit
def rmsnorm_kernel(
    x_ptr, weight_ptr, y_ptr, rows, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (offsets[None, :] < columns)
    places = row[:, None] * columns + offsets[None, :]
    x = tl.load(x_ptr + places, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + offsets, mask=offsets < columns, other=0.0)
    scale = inverse_root(mean_square(x, columns), eps)
    tl.store(y_ptr + places, x * scale[:, None] * weight[None, :], mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        rmsnorm_kernel[(triton.cdiv(rows, 16),)](
            x, self.weight, y, rows, columns, self.eps, ROWS=16, BLOCK=block
        )
        return y
