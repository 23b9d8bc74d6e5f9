# /// redteam
# problem = "tuple_out"
# devices = ["cpu", "cuda"]
# style = "reductions"
# what = "Asks a maximum for its indices, and writes both outputs."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_kernel(x_ptr, value_ptr, index_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
    value, index = tl.max(x, axis=0, return_indices=True)
    tl.store(value_ptr + row, value)
    tl.store(index_ptr + row, index.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        values = torch.empty(rows, device=x.device, dtype=x.dtype)
        indices = torch.empty(rows, device=x.device, dtype=torch.int64)
        max_kernel[(rows,)](x, values, indices, columns, BLOCK=triton.next_power_of_2(columns))
        return values, indices
