# /// redteam
# problem = "argmax"
# devices = ["cpu", "cuda"]
# what = "Integer output: the place of each row's greatest value."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def argmax_rows(x_ptr, out_ptr, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = tl.arange(0, BLOCK)
    mask = offsets[None, :] < columns
    places = row[:, None] * columns + offsets[None, :]
    x = tl.load(x_ptr + places, mask=mask, other=-float("inf"))
    tl.store(out_ptr + row, tl.argmax(x, axis=1).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, dtype=torch.int64, device=x.device)
        argmax_rows[(rows // 16,)](x, out, columns, ROWS=16, BLOCK=triton.next_power_of_2(columns))
        return out
