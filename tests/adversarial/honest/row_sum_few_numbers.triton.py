# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# what = "Reads a constant that NumPy made in __init__, and sends a few numbers to and fro."
# ///
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def weighted_rows(x_ptr, w_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + row, tl.sum(x * tl.load(w_ptr + offsets, mask=mask, other=0.0), axis=0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.from_numpy(np.ones(1 << 16, np.float32))

    def forward(self, x):
        self.weights = self.weights.to(x.device)
        rows, columns = torch.tensor(x.shape).tolist()
        first = x[0, :4].tolist()
        if any(value != value for value in first):
            raise ValueError(f"a row starts with {first}")
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        block = triton.next_power_of_2(columns)
        weighted_rows[(rows,)](x, self.weights, y, columns, BLOCK=block)
        return y
