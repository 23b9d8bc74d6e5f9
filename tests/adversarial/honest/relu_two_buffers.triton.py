# /// redteam
# problem = "relu"
# style = "persistent outputs"
# devices = ["cpu", "cuda"]
# what = "Writes results into two buffers of its own that take turns."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.results = None
        self.turn = 0

    def forward(self, x):
        if self.results is None:
            self.results = [torch.empty_like(x), torch.empty_like(x)]
        self.turn = 1 - self.turn
        y = self.results[self.turn]
        relu_kernel[(triton.cdiv(x.numel(), 8192),)](x, y, x.numel(), BLOCK=8192)
        return y
