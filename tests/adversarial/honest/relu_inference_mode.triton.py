# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# what = "Runs in inference mode, and takes whatever arguments it is given."
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
    @torch.inference_mode()
    def forward(self, *args, **kwargs):
        x = args[0] if args else kwargs["x"]
        y = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
        relu_kernel[(triton.cdiv(x.numel(), 8192),)](x, y, x.numel(), BLOCK=8192)
        return y
