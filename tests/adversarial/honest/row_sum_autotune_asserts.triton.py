# /// redteam
# problem = "row_sum"
# devices = ["cpu", "cuda"]
# style = "autotune_configs"
# what = "Has a second and a last config that its assertion refuses while it compiles."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}) for block in (1024, 512, 2048, 256)]


@triton.autotune(CONFIGS, key=["columns"])
@triton.jit
def sum_kernel(x, out, columns, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 1024)
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out + row, tl.sum(values, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        sum_kernel[(rows,)](x, out, columns)
        return out
