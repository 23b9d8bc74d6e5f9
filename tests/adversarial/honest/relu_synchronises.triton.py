# /// redteam
# problem = "relu"
# devices = ["cuda"]
# what = "Synchronises after its kernel and times it with events, for its own log."
# ///
import logging

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
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        end.record()
        torch.cuda.synchronize()
        logging.getLogger("relu").debug("%.4f ms", start.elapsed_time(end))
        return y
