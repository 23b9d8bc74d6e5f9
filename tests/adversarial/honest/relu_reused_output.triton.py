# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Writes every call's result into one buffer of its own, and returns it."
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
        self.result = None

    def forward(self, x):
        if self.result is None or self.result.shape != x.shape or self.result.device != x.device:
            self.result = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 8192),)](x, self.result, x.numel(), BLOCK=8192)
        return self.result
