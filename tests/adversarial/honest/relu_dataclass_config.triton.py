# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Keeps its launch options in a dataclass, under postponed annotations."
# ///
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn as nn
import triton
import triton.language as tl


@dataclass(frozen=True)
class Launch:
    block: int = 8192
    warps: int = 8

    def grid(self, n: int) -> tuple[int]:
        return (triton.cdiv(n, self.block),)


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.launch = Launch()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        options = self.launch
        relu_kernel[options.grid(x.numel())](
            x, y, x.numel(), BLOCK=options.block, num_warps=options.warps
        )
        return y
