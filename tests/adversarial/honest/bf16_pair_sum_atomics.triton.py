# /// redteam
# problem = "bf16_pair_sum"
# devices = ["cpu", "cuda"]
# what = "Adds two rows of bf16 into zeros by atomic additions."
# style = "bf16_interpreted"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + tl.program_id(0) * columns + at, mask=inside, other=0.0)
    tl.atomic_add(out_ptr + at, x, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
        add_row[(2, triton.cdiv(x.shape[1], 512))](x, out, x.shape[1], BLOCK=512)
        return out
