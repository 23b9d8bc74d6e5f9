# /// redteam
# problem = "add"
# devices = ["cpu", "cuda"]
# style = "tutorial_device"
# what = "The tutorial's DEVICE, asked of Triton's driver at import."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def combine(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    x = tl.load(a + at, mask=keep, other=0.0)
    y = tl.load(b + at, mask=keep, other=0.0)
    tl.store(out + at, x + y, mask=keep)


def add(x: torch.Tensor, y: torch.Tensor):
    output = torch.empty_like(x, device=DEVICE)
    assert x.device == DEVICE and y.device == DEVICE and output.device == DEVICE
    n = output.numel()
    combine[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, output, n, BLOCK=1024)
    return output


class ModelNew(nn.Module):
    def forward(self, a, b):
        return add(a, b)
