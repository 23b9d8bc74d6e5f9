# /// redteam
# problem = "linear_recurrence"
# devices = ["cpu", "cuda"]
# style = "loops"
# what = "Walks along rows step by step, many rows at once."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def recurrence_kernel(a_ptr, x_ptr, out_ptr, rows, length, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = row < rows
    state = tl.zeros((ROWS,), dtype=tl.float32)
    step = 0
    while step < length:
        place = row * length + step
        factor = tl.load(a_ptr + place, mask=mask)
        state = factor * state + tl.load(x_ptr + place, mask=mask)
        tl.store(out_ptr + place, state, mask=mask)
        step += 1


class ModelNew(nn.Module):
    def forward(self, a, x):
        out = torch.empty_like(x)
        recurrence_kernel[(1,)](a, x, out, a.shape[0], a.shape[1], ROWS=32)
        return out
