import torch
import torch.nn as nn
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def rmsnorm_kernel(
    x_ptr, weight_ptr, y_ptr, columns, eps, BLOCK: gl.constexpr, layout: gl.constexpr
):
    row = gl.program_id(0)
    offsets = gl.arange(0, BLOCK, layout=layout)
    mask = offsets < columns
    x = gl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(gl.float32)
    weight = gl.load(weight_ptr + offsets, mask=mask, other=0.0).to(gl.float32)
    scale = 1.0 / gl.sqrt(gl.sum(x * x, axis=0) / columns + eps)
    gl.store(y_ptr + row * columns + offsets, (x * scale * weight).to(gl.float16), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features, dtype=torch.float16) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        layout = gl.BlockedLayout([8], [32], [8], [0])
        block = max(2048, triton.next_power_of_2(columns))
        rmsnorm_kernel[(rows,)](x, self.weight, y, columns, self.eps, block, layout, num_warps=8)
        return y
