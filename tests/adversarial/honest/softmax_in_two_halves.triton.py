# /// redteam
# problem = "softmax"
# devices = ["cpu", "cuda"]
# what = "A softmax of torch's for the first rows and of its own for the rest, joined by cat."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = tl.arange(0, BLOCK)
    mask = offsets[None, :] < columns
    places = row[:, None] * columns + offsets[None, :]
    x = tl.load(x_ptr + places, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(y_ptr + places, e / tl.sum(e, axis=1)[:, None], mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        first, second = x.chunk(2, dim=0)
        exponentials = torch.exp(first - first.amax(dim=1, keepdim=True))
        y = torch.empty_like(second)
        rows, columns = second.shape
        block = triton.next_power_of_2(columns)
        softmax_rows[(rows // 8,)](second, y, columns, ROWS=8, BLOCK=block)
        return torch.cat((exponentials / exponentials.sum(dim=1, keepdim=True), y))
