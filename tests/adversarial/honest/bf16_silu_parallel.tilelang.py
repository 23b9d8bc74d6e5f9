# /// redteam
# problem = "bf16_silu"
# devices = ["cuda"]
# what = "SiLU in fp32 over a flat tensor, stored as bf16."
# ///
import tilelang
import tilelang.language as T
import torch.nn as nn


@tilelang.jit(out_idx=[-1])
def silu(n, block=1024, threads=128):
    @T.prim_func
    def main(x: T.Tensor((n,), "bfloat16"), y: T.Tensor((n,), "bfloat16")):
        with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
            for i in T.Parallel(block):
                value = T.cast(x[bx * block + i], "float32")
                y[bx * block + i] = T.cast(value / (1.0 + T.exp(-value)), "bfloat16")

    return main


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = {}

    def forward(self, x):
        n = x.numel()
        if n not in self.kernels:
            self.kernels[n] = silu(n)
        return self.kernels[n](x.contiguous().view(-1)).view(x.shape)
