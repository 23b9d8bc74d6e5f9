# /// redteam
# problem = "rmsnorm"
# devices = ["cpu", "cuda"]
# style = "block_pointers"
# what = "Loads a band of rows through one block pointer."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, w_ptr, out_ptr, rows, width, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    band = tl.make_block_ptr(
        base=x_ptr,
        shape=(rows, width),
        strides=(width, 1),
        offsets=(row, 0),
        block_shape=(ROWS, COLUMNS),
        order=(1, 0),
    )
    x = tl.load(band, boundary_check=(0, 1), padding_option="zero")
    column = tl.arange(0, COLUMNS)
    weight = tl.load(w_ptr + column, mask=column < width, other=0.0)
    root = tl.sqrt(tl.sum(x * x, axis=1) / width + eps)
    target = tl.make_block_ptr(
        out_ptr, (rows, width), (width, 1), (row, 0), (ROWS, COLUMNS), (1, 0)
    )
    tl.store(target, x / root[:, None] * weight[None, :], boundary_check=(0, 1))


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        rows, width = x.shape
        out = torch.empty_like(x)
        wide = triton.next_power_of_2(width)
        norm_kernel[(triton.cdiv(rows, 16),)](
            x, self.weight, out, rows, width, self.eps, ROWS=16, COLUMNS=wide
        )
        return out
