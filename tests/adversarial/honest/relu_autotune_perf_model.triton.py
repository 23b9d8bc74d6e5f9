# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "autotune_prune"
# what = "Ranks its configs by a model of their time."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def estimated_time(n, BLOCK, num_warps, **rest):
    return triton.cdiv(n, BLOCK) * (1 + BLOCK / (32 * num_warps))


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=4) for block in (4096, 8192, 16384)],
    key=["n"],
    prune_configs_by={"perf_model": estimated_time, "top_k": 2},
)
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
