# /// redteam
# problem = "bf16_silu"
# devices = ["cpu", "cuda"]
# what = "Leaves it to the store to narrow what it computed in fp32."
# style = "half_flat"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.cast(tl.load(x_ptr + at, mask=at < n, other=0.0), tl.float32)
    tl.store(out_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x, dtype=torch.bfloat16)
        silu[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), BLOCK=2048)
        return out
