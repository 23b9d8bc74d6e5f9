# /// redteam
# problem = "mean_dim"
# devices = ["cpu", "cuda"]
# what = "Takes its configuration from class attributes."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_middle(x_ptr, y_ptr, middle, last, CHUNK: tl.constexpr, LAST: tl.constexpr):
    outer = tl.program_id(0)
    columns = tl.arange(0, LAST)
    total = tl.zeros((LAST,), dtype=tl.float32)
    for start in range(0, middle, CHUNK):
        rows = start + tl.arange(0, CHUNK)
        mask = (rows[:, None] < middle) & (columns[None, :] < last)
        x = tl.load(
            x_ptr + (outer * middle + rows[:, None]) * last + columns[None, :],
            mask=mask,
            other=0.0,
        )
        total += tl.sum(x, axis=0)
    tl.store(y_ptr + outer * last + columns, total / middle, mask=columns < last)


class ModelNew(nn.Module):
    CHUNK = 32
    WARPS = (2, 8)

    def forward(self, x):
        outer, middle, last = x.shape
        y = torch.empty(outer, last, dtype=x.dtype, device=x.device)
        warps = self.WARPS[last > 512]
        mean_middle[(outer,)](
            x,
            y,
            middle,
            last,
            CHUNK=self.CHUNK,
            LAST=triton.next_power_of_2(last),
            num_warps=warps,
        )
        return y
