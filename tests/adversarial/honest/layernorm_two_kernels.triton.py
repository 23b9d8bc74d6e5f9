# /// redteam
# problem = "layernorm"
# devices = ["cpu", "cuda"]
# what = "Two kernels in a row, the first of which writes a temporary only."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(x_ptr, mean_ptr, scale_ptr, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = tl.arange(0, BLOCK)
    mask = offsets[None, :] < columns
    x = tl.load(x_ptr + row[:, None] * columns + offsets[None, :], mask=mask, other=0.0)
    mean = tl.sum(x, axis=1) / columns
    centred = tl.where(mask, x - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / columns
    tl.store(mean_ptr + row, mean)
    tl.store(scale_ptr + row, 1.0 / tl.sqrt(variance + eps))


@triton.jit
def apply(x_ptr, mean_ptr, scale_ptr, weight_ptr, bias_ptr, y_ptr, columns, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    row, column = offsets // columns, offsets % columns
    x = tl.load(x_ptr + offsets, mask=mask)
    mean = tl.load(mean_ptr + row, mask=mask)
    scale = tl.load(scale_ptr + row, mask=mask)
    weight = tl.load(weight_ptr + column, mask=mask)
    bias = tl.load(bias_ptr + column, mask=mask)
    tl.store(y_ptr + offsets, (x - mean) * scale * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        rows, columns = x.shape
        mean, scale = x.new_empty(rows), x.new_empty(rows)
        y = torch.empty_like(x)
        weight, bias = self.norm.weight, self.norm.bias
        block = triton.next_power_of_2(columns)
        moments[(rows // 8,)](x, mean, scale, columns, self.norm.eps, ROWS=8, BLOCK=block)
        n = x.numel()
        apply[(triton.cdiv(n, 4096),)](x, mean, scale, weight, bias, y, columns, n, BLOCK=4096)
        return y
