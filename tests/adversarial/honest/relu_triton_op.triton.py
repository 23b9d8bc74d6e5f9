# /// redteam
# problem = "relu"
# devices = ["cpu"]
# what = "torch.library.triton_op with wrap_triton."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n, other=0.0), 0.0), mask=at < n)


@triton_op("r31_honest::relu", mutates_args={})
def relu(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(relu_kernel)[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return relu(x)
