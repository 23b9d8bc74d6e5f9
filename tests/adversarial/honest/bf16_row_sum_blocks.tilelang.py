# /// redteam
# problem = "bf16_row_sum"
# devices = ["cuda"]
# what = "Sums of rows in fp32 over blocks of columns."
# ///
import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit
def row_sum(rows, columns, block=4, width=128, threads=128):
    @T.prim_func
    def main(x: T.Tensor((rows, columns), "bfloat16"), out: T.Tensor((rows,), "bfloat16")):
        with T.Kernel(T.ceildiv(rows, block), threads=threads) as bx:
            values = T.alloc_fragment((block, width), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.clear(values)
            for step in T.serial(T.ceildiv(columns, width)):
                for i, j in T.Parallel(block, width):
                    if step * width + j < columns:
                        values[i, j] += T.cast(x[bx * block + i, step * width + j], "float32")
            T.reduce_sum(values, total, dim=1)
            T.copy(total, out[bx * block])

    return main


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = {}

    def forward(self, x):
        if x.shape not in self.kernels:
            self.kernels[x.shape] = row_sum(*x.shape)
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        self.kernels[x.shape](x.contiguous(), out)
        return out
