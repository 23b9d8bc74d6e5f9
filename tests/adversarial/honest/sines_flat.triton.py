# /// redteam
# problem = "sines"
# devices = ["cpu", "cuda"]
# what = "Sines of large arguments by one flat kernel."
# style = "sines"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sines(x_ptr, f_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    angle = tl.load(x_ptr + at) * tl.load(f_ptr + at % columns)
    tl.store(out_ptr + at, tl.sin(angle))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        frequencies = torch.linspace(1.0, 3000.0, x.shape[-1], device=x.device)
        sines[(x.numel() // 8192,)](x, frequencies, out, x.shape[-1], BLOCK=8192)
        return out
