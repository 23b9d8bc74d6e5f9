# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Catches the error of an import that may be missing."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl

try:
    import apex_of_nobody as extra
except ImportError:
    extra = None


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = 4096 if extra is not None else 8192

    def forward(self, x):
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), self.block),)
        relu_kernel[grid](x, y, x.numel(), BLOCK=self.block)
        return y
