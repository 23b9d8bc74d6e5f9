# /// redteam
# problem = "softmax"
# devices = ["cpu", "cuda"]
# what = "Keeps a workspace between calls, and writes all of it anew in each."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_statistics(x_ptr, stats_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    top = tl.max(x, axis=0)
    total = tl.sum(tl.where(mask, tl.exp(x - top), 0.0), axis=0)
    tl.store(stats_ptr + 2 * row, top)
    tl.store(stats_ptr + 2 * row + 1, total)


@triton.jit
def normalise(x_ptr, stats_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask)
    top = tl.load(stats_ptr + 2 * row)
    total = tl.load(stats_ptr + 2 * row + 1)
    tl.store(y_ptr + row * columns + offsets, tl.exp(x - top) / total, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._workspaces = {}

    def _workspace(self, x):
        key = (x.shape[0], x.device)
        if key not in self._workspaces:
            self._workspaces[key] = torch.empty(2 * x.shape[0], device=x.device)
        return self._workspaces[key]

    def forward(self, x):
        rows, columns = x.shape
        stats = self._workspace(x)
        y = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        row_statistics[(rows,)](x, stats, columns, BLOCK=block)
        normalise[(rows,)](x, stats, y, columns, BLOCK=block)
        return y
