# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Holds the word pass as a statement, in names and in docstrings."
# ///
"""ReLU. The forward pass is one pass over the input; nothing bypasses the kernel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Marker:
    """Does nothing: there is no backward pass."""

    pass


@triton.jit
def single_pass_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """One pass: load, clamp, store."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    """Model whose forward pass runs the kernel."""

    passes = 1

    def forward(self, x):
        """Run the forward pass."""
        y = torch.empty_like(x)
        for _ in range(self.passes):
            if x.numel() == 0:
                pass
            single_pass_kernel[(triton.cdiv(x.numel(), 8192),)](x, y, x.numel(), BLOCK=8192)
        return y
