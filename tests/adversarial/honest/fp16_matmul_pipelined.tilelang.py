# /// redteam
# problem = "fp16_matmul"
# devices = ["cuda"]
# what = "Tiles in shared memory, pipelined, multiplied by T.gemm with the second transposed."
# ///
import tilelang
import tilelang.language as T
import torch.nn as nn


@tilelang.jit(out_idx=[-1])
def matmul(m, n, k, block_m=64, block_n=64, block_k=32, threads=128):
    dtype = "float16"

    @T.prim_func
    def main(a: T.Tensor((m, k), dtype), b: T.Tensor((n, k), dtype), c: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), threads=threads) as (bx, by):
            left = T.alloc_shared((block_m, block_k), dtype)
            right = T.alloc_shared((block_n, block_k), dtype)
            total = T.alloc_fragment((block_m, block_n), "float32")
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=3):
                T.copy(a[by * block_m, step * block_k], left)
                T.copy(b[bx * block_n, step * block_k], right)
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, c[by * block_m, bx * block_n])

    return main


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = {}

    def forward(self, x, y):
        key = x.shape[0], y.shape[0], x.shape[1]
        if key not in self.kernels:
            self.kernels[key] = matmul(*key)
        return self.kernels[key](x.contiguous(), y.contiguous())
