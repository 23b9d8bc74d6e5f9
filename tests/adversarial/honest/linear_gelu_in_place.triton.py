# /// redteam
# problem = "linear_gelu"
# devices = ["cpu", "cuda"]
# what = "Works in place on a temporary of its own."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_in_place(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(x_ptr + offsets, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        with torch.no_grad():
            y = self.linear(x)
            gelu_in_place[(triton.cdiv(y.numel(), 2048),)](y, y.numel(), BLOCK=2048)
        return y
