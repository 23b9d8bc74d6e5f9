# /// redteam
# problem = "bf16_layernorm"
# devices = ["cuda"]
# what = "Mean and variance of rows in fragments, in fp32."
# ///
import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit(out_idx=[-1])
def layernorm(rows, columns, eps, block=4, threads=128):
    width = 1 << (columns - 1).bit_length()
    dtype = "bfloat16"

    @T.prim_func
    def main(
        x: T.Tensor((rows, columns), dtype),
        weight: T.Tensor((columns,), dtype),
        bias: T.Tensor((columns,), dtype),
        y: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(T.ceildiv(rows, block), threads=threads) as bx:
            values = T.alloc_fragment((block, width), "float32")
            squares = T.alloc_fragment((block, width), "float32")
            mean = T.alloc_fragment((block,), "float32")
            variance = T.alloc_fragment((block,), "float32")
            for i, j in T.Parallel(block, width):
                values[i, j] = T.if_then_else(
                    j < columns, T.cast(x[bx * block + i, j], "float32"), 0.0
                )
            T.reduce_sum(values, mean, dim=1)
            for i, j in T.Parallel(block, width):
                values[i, j] = T.if_then_else(j < columns, values[i, j] - mean[i] / columns, 0.0)
            for i, j in T.Parallel(block, width):
                squares[i, j] = values[i, j] * values[i, j]
            T.reduce_sum(squares, variance, dim=1)
            for i, j in T.Parallel(block, width):
                if j < columns:
                    scaled = values[i, j] / T.sqrt(variance[i] / columns + eps)
                    scaled = scaled * T.cast(weight[j], "float32") + T.cast(bias[j], "float32")
                    y[bx * block + i, j] = T.cast(scaled, dtype)

    return main


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)
        self.kernels = {}

    def forward(self, x):
        if x.shape not in self.kernels:
            self.kernels[x.shape] = layernorm(*x.shape, self.norm.eps)
        return self.kernels[x.shape](x.contiguous(), self.norm.weight, self.norm.bias)
