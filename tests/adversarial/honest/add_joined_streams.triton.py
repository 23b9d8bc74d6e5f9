# /// redteam
# problem = "add"
# devices = ["cpu", "cuda"]
# what = "Does one half on a side stream, and joins it before it returns."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, begin, end, BLOCK: tl.constexpr):
    offsets = begin + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < end
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None

    def forward(self, x, y):
        if self.side is None:
            self.side = torch.cuda.Stream(device=x.device)
        out = torch.empty_like(x)
        n = x.numel()
        half = n // 2
        current = torch.cuda.current_stream(x.device)
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            add_kernel[(triton.cdiv(n - half, 1024),)](x, y, out, half, n, BLOCK=1024)
        add_kernel[(triton.cdiv(half, 1024),)](x, y, out, 0, half, BLOCK=1024)
        current.wait_stream(self.side)
        return out
