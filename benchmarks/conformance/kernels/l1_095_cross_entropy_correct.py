# /// conformance
# problem = "KernelBench/L1/95"
# language = "triton"
# outcome = "correct"
# documented = "integer inputs"
# sizes = { batch_size = 4096 }
# cpu_sizes = { batch_size = 6, num_classes = 50 }
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_loss(p_ptr, t_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    p = tl.load(p_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    top = tl.max(p, axis=0)
    total = tl.log(tl.sum(tl.exp(p - top), axis=0)) + top
    target = tl.load(t_ptr + row).to(tl.int32)
    tl.store(out_ptr + row, total - tl.sum(tl.where(offsets == target, p, 0.0), axis=0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, predictions, targets):
        rows, columns = predictions.shape
        losses = torch.empty(rows, device=predictions.device)
        block = triton.next_power_of_2(columns)
        row_loss[(rows,)](predictions, targets, losses, columns, BLOCK=block)
        return losses.mean()
