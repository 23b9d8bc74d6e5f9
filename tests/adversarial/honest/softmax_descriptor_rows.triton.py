# /// redteam
# problem = "softmax"
# devices = ["cpu", "cuda"]
# style = "descriptors_from_host"
# what = "Loads whole rows by a descriptor that pads them."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def softmax_kernel(x, out, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    inside = tl.arange(0, COLUMNS)[None, :] < columns
    values = tl.where(inside, x.load([row, 0]), float("-inf"))
    power = tl.exp(values - tl.max(values, axis=1, keep_dims=True))
    out.store([row, 0], power / tl.sum(power, axis=1, keep_dims=True))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        wide = min(256, triton.next_power_of_2(columns))
        if wide < columns:  # a descriptor's block is at most 256 wide: take it in parts
            return softmax_in_parts(x, out)
        blocks = [16, wide]
        source, target = (TensorDescriptor.from_tensor(t, blocks) for t in (x, out))
        softmax_kernel[(triton.cdiv(rows, 16),)](source, target, columns, ROWS=16, COLUMNS=wide)
        return out


@triton.jit
def parts_kernel(x, out, columns, ROWS: tl.constexpr, PART: tl.constexpr):
    row = tl.program_id(0) * ROWS
    top = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, columns, PART):
        inside = start + tl.arange(0, PART)[None, :] < columns
        values = tl.where(inside, x.load([row, start]), float("-inf"))
        higher = tl.maximum(top, tl.max(values, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(values - higher[:, None]), axis=1)
        top = higher
    for start in range(0, columns, PART):
        values = x.load([row, start])
        out.store([row, start], tl.exp(values - top[:, None]) / total[:, None])


def softmax_in_parts(x, out):
    source, target = (TensorDescriptor.from_tensor(t, [16, 128]) for t in (x, out))
    parts_kernel[(triton.cdiv(x.shape[0], 16),)](source, target, x.shape[1], ROWS=16, PART=128)
    return out
