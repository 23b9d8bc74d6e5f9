# /// redteam
# problem = "softmax"
# devices = ["cpu", "cuda"]
# what = "Compiles ahead with warmup, and launches the compiled kernel's handle."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = None

    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        if self.compiled is None:
            self.compiled = softmax_rows.warmup(x, y, columns, BLOCK=block, grid=(1,))
            self.compiled._init_handles()
        self.compiled[(rows, 1, 1)](x, y, columns, block)
        return y
