# /// redteam
# problem = "relu"
# devices = ["cpu", "cuda"]
# style = "autotune_prune"
# what = "Prunes its configs with a lambda."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 2**power}) for power in range(11, 15)],
    key=["n"],
    prune_configs_by={
        "early_config_prune": lambda configs, named, **rest: [
            config for config in configs if config.kwargs["BLOCK"] <= named["n"] // 16
        ]
    },
)
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.where(x > 0, x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
