# /// redteam
# problem = "fp16_softmax"
# devices = ["cuda"]
# what = "Softmax in two sweeps over blocks of columns, its sum rescaled as the maximum grows."
# ///
import tilelang
import tilelang.language as T
import torch.nn as nn


@tilelang.jit(out_idx=[-1])
def softmax(rows, columns, block=4, width=128, threads=128):
    @T.prim_func
    def main(x: T.Tensor((rows, columns), "float16"), y: T.Tensor((rows, columns), "float16")):
        with T.Kernel(T.ceildiv(rows, block), threads=threads) as bx:
            values = T.alloc_fragment((block, width), "float32")
            top = T.alloc_fragment((block,), "float32")
            before = T.alloc_fragment((block,), "float32")
            part = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((block,), "float32")
            T.fill(top, -T.infinity("float32"))
            T.clear(total)
            for step in T.serial(T.ceildiv(columns, width)):
                for i, j in T.Parallel(block, width):
                    values[i, j] = T.if_then_else(
                        step * width + j < columns,
                        T.cast(x[bx * block + i, step * width + j], "float32"),
                        -T.infinity("float32"),
                    )
                T.copy(top, before)
                T.reduce_max(values, top, dim=1, clear=False)
                for i, j in T.Parallel(block, width):
                    values[i, j] = T.exp(values[i, j] - top[i])
                T.reduce_sum(values, part, dim=1)
                for i in T.Parallel(block):
                    total[i] = total[i] * T.exp(before[i] - top[i]) + part[i]
            for step in T.serial(T.ceildiv(columns, width)):
                for i, j in T.Parallel(block, width):
                    if step * width + j < columns:
                        value = T.cast(x[bx * block + i, step * width + j], "float32")
                        y[bx * block + i, step * width + j] = T.cast(
                            T.exp(value - top[i]) / total[i], "float16"
                        )

    return main


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = {}

    def forward(self, x):
        if x.shape not in self.kernels:
            self.kernels[x.shape] = softmax(*x.shape)
        return self.kernels[x.shape](x.contiguous())
