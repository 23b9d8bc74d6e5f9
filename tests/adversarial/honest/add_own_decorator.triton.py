# /// redteam
# problem = "add"
# devices = ["cpu", "cuda"]
# style = "autotune_helper"
# what = "Wraps the autotuner in a decorator of its own."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def tuned(*keys):
    configs = [triton.Config({"BLOCK": 4096}), triton.Config({"BLOCK": 8192}, num_warps=8)]
    return triton.autotune(configs=configs, key=list(keys))


@tuned("n")
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
        return out
