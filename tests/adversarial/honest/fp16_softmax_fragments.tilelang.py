# /// redteam
# problem = "fp16_softmax"
# devices = ["cuda"]
# what = "Softmax of rows held in fragments: two reductions along the tile."
# ///
import tilelang
import tilelang.language as T
import torch.nn as nn


@tilelang.jit(out_idx=[-1])
def softmax(rows, columns, threads=128):
    width = 1 << (columns - 1).bit_length()
    block = max(1, 2048 // width)  # 16 to 32 numbers a thread, up to rows of 4096

    @T.prim_func
    def main(x: T.Tensor((rows, columns), "float16"), y: T.Tensor((rows, columns), "float16")):
        with T.Kernel(T.ceildiv(rows, block), threads=threads) as bx:
            values = T.alloc_fragment((block, width), "float32")
            top = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            for i, j in T.Parallel(block, width):
                values[i, j] = T.if_then_else(
                    j < columns, T.cast(x[bx * block + i, j], "float32"), -T.infinity("float32")
                )
            T.reduce_max(values, top, dim=1)
            for i, j in T.Parallel(block, width):
                values[i, j] = T.exp(values[i, j] - top[i])
            T.reduce_sum(values, total, dim=1)
            for i, j in T.Parallel(block, width):
                if j < columns:
                    y[bx * block + i, j] = T.cast(values[i, j] / total[i], "float16")

    return main


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = {}

    def forward(self, x):
        if x.shape not in self.kernels:
            self.kernels[x.shape] = softmax(*x.shape)
        return self.kernels[x.shape](x.contiguous())
