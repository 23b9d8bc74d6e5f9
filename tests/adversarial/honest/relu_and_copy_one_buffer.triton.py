# /// redteam
# problem = "relu_and_copy"
# style = "input for a copy"
# devices = ["cpu", "cuda"]
# what = "Returns copies of the input, and two outputs that share one buffer of its own."
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
    def forward(self, x):
        y = torch.empty_like(x)
        copies = x.new_empty(x.shape[0] + 16, x.shape[1])
        copies[: x.shape[0]] = x
        copies[x.shape[0] :] = x[:16]
        relu_kernel[(triton.cdiv(x.numel(), 8192),)](x, y, x.numel(), BLOCK=8192)
        return y, copies[: x.shape[0]], copies[x.shape[0] :]
