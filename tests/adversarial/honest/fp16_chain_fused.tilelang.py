# /// redteam
# problem = "fp16_chain"
# devices = ["cuda"]
# what = "The whole chain in one kernel, rounded to fp16 after each step as the reference is."
# ///
import tilelang
import tilelang.language as T
import torch.nn as nn


@tilelang.jit(out_idx=[-1])
def chain(n, block=2048, threads=256):
    dtype = "float16"

    @T.prim_func
    def main(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype), out: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
            for i in T.Parallel(block):
                at = bx * block + i
                product = T.cast(T.cast(x[at], "float32") * T.cast(y[at], "float32"), dtype)
                value = T.cast(T.cast(product, "float32") + T.cast(x[at], "float32"), dtype)
                half = T.max(value, T.cast(0, dtype)) * T.cast(0.5, dtype)
                out[at] = T.cast(T.cast(half, "float32") + T.cast(y[at], "float32"), dtype)

    return main


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = {}

    def forward(self, x, y):
        n = x.numel()
        if n not in self.kernels:
            self.kernels[n] = chain(n)
        return self.kernels[n](x.contiguous().view(-1), y.contiguous().view(-1)).view(x.shape)
