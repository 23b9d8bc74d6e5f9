# /// redteam
# problem = "linear_gelu"
# devices = ["cpu", "cuda"]
# what = "Has torch add up products of parts of the sum; its kernel applies GELU."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        left = x.unflatten(1, (4, -1)).transpose(0, 1)
        right = self.linear.weight.t().unflatten(0, (4, -1))
        whole = torch.addbmm(self.linear.bias.expand(x.shape[0], -1), left, right)
        out = torch.empty_like(whole)
        gelu_kernel[(triton.cdiv(out.numel(), 2048),)](whole, out, out.numel(), BLOCK=2048)
        return out
