# /// redteam
# problem = "linear_recurrence"
# devices = ["cpu", "cuda"]
# style = "scans"
# what = "Composes affine maps with an associative scan."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def compose(first_factor, first_term, then_factor, then_term):
    return first_factor * then_factor, first_term * then_factor + then_term


@triton.jit
def recurrence_kernel(a_ptr, x_ptr, out_ptr, length, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < length
    place = tl.program_id(0) * length + at
    factors = tl.load(a_ptr + place, mask=mask, other=1.0)
    terms = tl.load(x_ptr + place, mask=mask, other=0.0)
    _, states = tl.associative_scan((factors, terms), 0, compose)
    tl.store(out_ptr + place, states, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, x):
        out = torch.empty_like(x)
        recurrence_kernel[(a.shape[0],)](
            a, x, out, a.shape[1], BLOCK=triton.next_power_of_2(a.shape[1])
        )
        return out
