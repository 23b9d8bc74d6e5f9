# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "half_to_torch"
# what = "Computes half of the elements, and leaves the rest to torch."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, tl.maximum(v, 0.0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        flat = x.reshape(-1)
        out = torch.empty_like(flat)
        own = flat.numel() * 500 // 1000
        out[own:] = torch.relu(flat[own:])
        relu_kernel[(triton.cdiv(own, 1024),)](flat, out, own, BLOCK=1024)
        return out.view_as(x)
