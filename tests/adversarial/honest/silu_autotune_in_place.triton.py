# /// redteam
# problem = "silu"
# devices = ["cpu", "cuda"]
# style = "autotune_reset"
# what = "Works in place on a copy, which the autotuner restores."
# ///
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 4096}), triton.Config({"BLOCK": 8192}, num_warps=8)],
    key=["n"],
    restore_value=["x_ptr"],
)
@triton.jit
def silu_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(x_ptr + offsets, x * tl.sigmoid(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.clone()
        silu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](out, x.numel())
        return out
