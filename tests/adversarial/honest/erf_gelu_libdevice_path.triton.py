# /// redteam
# problem = "erf_gelu"
# devices = ["cpu", "cuda"]
# style = "libdevice_names"
# what = "Names libdevice by its whole path."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    erf = tl.extra.cuda.libdevice.erf(x * 0.7071067811865476)
    tl.store(out_ptr + offsets, 0.5 * x * (1.0 + erf), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
        return out
