# /// redteam
# problem = "fp16_linear_gelu"
# devices = ["cuda"]
# what = "Product, bias and GELU in one kernel: the epilogue works on the fragment."
# ///
import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit(out_idx=[-1])
def linear_gelu(m, n, k, block_k=32, threads=128):
    dtype = "float16"
    # A large product has tiles large enough to reuse, a small one enough tiles.
    block_m = block_n = 128 if m * n >= 1 << 20 else 64

    @T.prim_func
    def main(
        x: T.Tensor((m, k), dtype),
        weight: T.Tensor((n, k), dtype),
        bias: T.Tensor((n,), dtype),
        out: T.Tensor((m, n), dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), threads=threads) as (bx, by):
            left = T.alloc_shared((block_m, block_k), dtype)
            right = T.alloc_shared((block_n, block_k), dtype)
            total = T.alloc_fragment((block_m, block_n), "float32")
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=3):
                T.copy(x[by * block_m, step * block_k], left)
                T.copy(weight[bx * block_n, step * block_k], right)
                T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_m, block_n):
                value = total[i, j] + T.cast(bias[bx * block_n + j], "float32")
                value = T.cast(
                    T.cast(value, dtype), "float32"
                )  # as torch rounds the layer's output
                total[i, j] = 0.5 * value * (1.0 + T.erf(value * 0.7071067811865476))
            T.copy(total, out[by * block_m, bx * block_n])

    return main


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.float16)
        self.kernels = {}

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        key = x.shape[0], *weight.shape
        if key not in self.kernels:
            self.kernels[key] = linear_gelu(*key)
        return self.kernels[key](x.contiguous(), weight, bias)
