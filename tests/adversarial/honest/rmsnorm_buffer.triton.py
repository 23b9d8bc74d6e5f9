# /// redteam
# problem = "rmsnorm"
# devices = ["cpu", "cuda"]
# what = "Registers a constant buffer that the reference does not have."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, consts_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    inverse = tl.load(consts_ptr)
    eps = tl.load(consts_ptr + 1)
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    root = tl.sqrt(tl.sum(x * x, axis=0) * inverse + eps)
    tl.store(y_ptr + row * columns + offsets, x / root * weight, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.register_buffer("consts", torch.tensor([1.0 / features, eps]), persistent=False)

    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        rmsnorm_kernel[(rows,)](x, self.weight, self.consts, y, columns, BLOCK=block)
        return y
