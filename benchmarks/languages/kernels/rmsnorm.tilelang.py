import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit(out_idx=[-1])
def rmsnorm(rows, columns, eps, block=2, threads=256):
    width = 1 << (columns - 1).bit_length()
    dtype = "float16"

    @T.prim_func
    def main(
        x: T.Tensor((rows, columns), dtype),
        weight: T.Tensor((columns,), dtype),
        y: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(T.ceildiv(rows, block), threads=threads) as bx:
            values = T.alloc_fragment((block, width), "float32")
            squares = T.alloc_fragment((block, width), "float32")
            total = T.alloc_fragment((block,), "float32")
            for i, j in T.Parallel(block, width):
                values[i, j] = T.if_then_else(
                    j < columns, T.cast(x[bx * block + i, j], "float32"), 0.0
                )
            for i, j in T.Parallel(block, width):
                squares[i, j] = values[i, j] * values[i, j]
            T.reduce_sum(squares, total, dim=1)
            for i in T.Parallel(block):
                total[i] = 1.0 / T.sqrt(total[i] / columns + eps)
            for i, j in T.Parallel(block, width):
                if j < columns:
                    scaled = values[i, j] * total[i] * T.cast(weight[j], "float32")
                    y[bx * block + i, j] = T.cast(scaled, dtype)

    return main


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features, dtype=torch.float16) + 0.5)
        self.kernels = {}

    def forward(self, x):
        if x.shape not in self.kernels:
            self.kernels[x.shape] = rmsnorm(*x.shape, self.eps)
        return self.kernels[x.shape](x.contiguous(), self.weight)
