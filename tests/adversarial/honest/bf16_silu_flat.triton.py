# /// redteam
# problem = "bf16_silu"
# devices = ["cpu", "cuda"]
# what = "One flat kernel that widens, computes and narrows."
# style = "half_flat"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(out_ptr + at, (x * tl.sigmoid(x)).to(tl.bfloat16), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        silu[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
        return out
