# /// redteam
# problem = "relu"
# style = "stream order"
# devices = ["cuda"]
# what = "Launches programmatically: blocks start early, and wait before they load."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.extra.cuda.gdc_wait()
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, 0.0), mask=mask)
    tl.extra.cuda.gdc_launch_dependents()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 2048),)
        relu_kernel[grid](x, y, x.numel(), BLOCK=2048, launch_pdl=True)
        return y
