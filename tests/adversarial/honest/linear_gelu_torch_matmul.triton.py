# /// redteam
# problem = "linear_gelu"
# devices = ["cpu", "cuda"]
# what = "Multiplies with torch, and adds bias and GELU in a kernel."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_gelu(x_ptr, bias_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask) + tl.load(bias_ptr + offsets % columns, mask=mask)
    tl.store(y_ptr + offsets, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        product = torch.matmul(x, self.linear.weight.t())
        y = torch.empty_like(product)
        n = product.numel()
        bias_gelu[(triton.cdiv(n, 2048),)](
            product, self.linear.bias, y, n, product.shape[1], BLOCK=2048
        )
        return y
