# /// redteam
# problem = "rmsnorm"
# devices = ["cpu", "cuda"]
# style = "libdevice"
# what = "Scales rows by libdevice's reciprocal root."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def norm_kernel(x_ptr, w_ptr, out_ptr, rows, width, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < width)
    x = tl.load(x_ptr + row * width + column, mask=mask, other=0.0)
    scale = libdevice.rsqrt(tl.sum(x * x, axis=1) / width + eps)
    weight = tl.load(w_ptr + column, mask=column < width, other=0.0)
    tl.store(out_ptr + row * width + column, x * scale[:, None] * weight, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        rows, width = x.shape
        out = torch.empty_like(x)
        norm_kernel[(triton.cdiv(rows, 16),)](
            x, self.weight, out, rows, width, self.eps, 16, triton.next_power_of_2(width)
        )
        return out
