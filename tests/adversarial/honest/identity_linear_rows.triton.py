# /// redteam
# problem = "identity_linear"
# devices = ["cpu", "cuda"]
# style = "structured_state"
# what = "Multiplies by the whole weight, which is the identity at first."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, columns, BM: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    outs, at = tl.program_id(1) * BM + tl.arange(0, BM), tl.arange(0, BK)
    total = tl.zeros((BM, BM), dtype=tl.float32)
    for start in range(0, columns, BK):
        x = tl.load(x_ptr + rows[:, None] * columns + (start + at)[None, :])
        w = tl.load(w_ptr + outs[None, :] * columns + (start + at)[:, None])
        total += tl.dot(x, w, input_precision="ieee")
    tl.store(y_ptr + rows[:, None] * columns + outs[None, :], tl.maximum(total, 0.0))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, bias=False)
        nn.init.eye_(self.linear.weight)

    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        linear_kernel[(rows // 64, columns // 64)](x, self.linear.weight, y, columns, BM=64, BK=64)
        return y
