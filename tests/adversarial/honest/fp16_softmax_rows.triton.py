# /// redteam
# problem = "fp16_softmax"
# devices = ["cpu", "cuda"]
# what = "Loads halves, computes in fp32, stores what the output's pointer points to."
# style = "half_rows"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * columns + at, y.to(out_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax_rows[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
