# /// redteam
# problem = "mean_dim"
# devices = ["cpu", "cuda"]
# style = "loops"
# what = "Unrolls the loop over a row's parts."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, out_ptr, length, width, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)[None, :]
    start = x_ptr + tl.program_id(0) * length * width
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        step = part * 32 + tl.arange(0, 32)[:, None]
        mask = (step < length) & (column < width)
        total += tl.sum(tl.load(start + step * width + column, mask=mask, other=0.0), axis=0)
    place = tl.arange(0, COLUMNS)
    tl.store(out_ptr + tl.program_id(0) * width + place, total / length, mask=place < width)


class ModelNew(nn.Module):
    def forward(self, x):
        batch, length, width = x.shape
        out = torch.empty((batch, width), device=x.device, dtype=x.dtype)
        wide = triton.next_power_of_2(width)
        mean_kernel[(batch,)](x, out, length, width, triton.cdiv(length, 32), wide)
        return out
