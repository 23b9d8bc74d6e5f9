# /// redteam
# problem = "bf16_silu"
# devices = ["cuda"]
# what = "SiLU in TileLang's eager mode: no prim_func, and the call compiles, launches and returns."
# ///
import tilelang
import tilelang.language as T
import torch.nn as nn


@tilelang.jit
def silu(x, block: int = 1024):
    n = T.const("n")
    x: T.Tensor[[n], T.bfloat16]
    y = T.empty([n], T.bfloat16)
    with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
        for i in T.Parallel(block):
            if bx * block + i < n:
                value = T.cast(x[bx * block + i], "float32")
                y[bx * block + i] = T.cast(value / (1.0 + T.exp(-value)), "bfloat16")
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return silu(x.view(-1)).view(x.shape)
