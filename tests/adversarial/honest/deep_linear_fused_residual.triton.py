# /// redteam
# problem = "deep_linear_residual"
# devices = ["cuda"]
# style = "epilogue_of_long_product"
# what = "Leaves the long product to torch, and fuses the two operators behind it."
# ///

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_and_add(y, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(y + at, mask=at < n, other=0.0)
    tl.store(y + at, value * scale + value, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, features, outputs, scale):
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.scale = scale

    def forward(self, x):
        y = self.linear(x)
        scale_and_add[(triton.cdiv(y.numel(), 4096),)](y, y.numel(), self.scale, BLOCK=4096)
        return y
