# /// redteam
# problem = "softmax_cross_entropy"
# devices = ["cpu", "cuda"]
# what = "Scalar output, summed by a second kernel of one program."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def losses(x_ptr, target_ptr, loss_ptr, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    offsets = tl.arange(0, BLOCK)
    mask = offsets[None, :] < columns
    places = row[:, None] * columns + offsets[None, :]
    x = tl.load(x_ptr + places, mask=mask, other=-float("inf"))
    top = tl.max(x, axis=1)
    total = tl.sum(tl.exp(x - top[:, None]), axis=1)
    target = tl.load(target_ptr + row)
    wanted = tl.load(x_ptr + row * columns + target)
    tl.store(loss_ptr + row, tl.log(total) + top - wanted)


@triton.jit
def mean(loss_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    loss = tl.load(loss_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr, tl.sum(loss, axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        rows, columns = logits.shape
        loss = logits.new_empty(rows)
        out = torch.empty((), dtype=logits.dtype, device=logits.device)
        block = triton.next_power_of_2(columns)
        losses[(rows // 16,)](logits, targets, loss, columns, ROWS=16, BLOCK=block)
        mean[(1,)](loss, out, rows, BLOCK=triton.next_power_of_2(rows))
        return out
