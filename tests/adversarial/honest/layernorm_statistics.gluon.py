# /// redteam
# problem = "layernorm"
# devices = ["cuda"]
# what = "Mean and variance of a row in registers."
# ///
import torch
import torch.nn as nn
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def layernorm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, columns, eps, BLOCK: gl.constexpr, layout: gl.constexpr
):
    row = gl.program_id(0)
    offsets = gl.arange(0, BLOCK, layout=layout)
    mask = offsets < columns
    x = gl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean = gl.sum(x, axis=0) / columns
    away = gl.where(mask, x - mean, 0.0)
    scale = gl.sqrt(gl.sum(away * away, axis=0) / columns + eps)
    weight = gl.load(weight_ptr + offsets, mask=mask, other=0.0)
    bias = gl.load(bias_ptr + offsets, mask=mask, other=0.0)
    gl.store(y_ptr + row * columns + offsets, away / scale * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        layout = gl.BlockedLayout([2], [32], [4], [0])
        block = max(256, triton.next_power_of_2(columns))
        weight, bias, eps = self.norm.weight, self.norm.bias, self.norm.eps
        layernorm_kernel[(rows,)](x, weight, bias, y, columns, eps, block, layout, num_warps=4)
        return y
