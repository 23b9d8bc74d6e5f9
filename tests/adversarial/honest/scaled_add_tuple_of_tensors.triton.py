# /// redteam
# problem = "scaled_add"
# devices = ["cpu", "cuda"]
# style = "arguments"
# what = "Takes its inputs as one tuple, and a scalar by name."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(inputs, out_ptr, n, alpha, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x, y = tl.load(inputs[0] + at, mask=mask), tl.load(inputs[1] + at, mask=mask)
    tl.store(out_ptr + at, x + alpha * y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 4096),)](
            (x, y), out, n=x.numel(), alpha=alpha, BLOCK=4096
        )
        return out
