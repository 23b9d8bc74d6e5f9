# /// redteam
# problem = "elu"
# devices = ["cpu", "cuda"]
# style = "autotune_called"
# what = "Calls jit and autotune as functions instead of decorating."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def elu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.where(x > 0, x, tl.exp(x) - 1.0), mask=mask)


compiled = triton.jit(elu_kernel)
kernel = triton.autotune([triton.Config({"BLOCK": 4096}), triton.Config({"BLOCK": 8192})], ["n"])(
    compiled
)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
