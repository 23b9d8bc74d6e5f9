# /// redteam
# problem = "fp16_sdpa"
# devices = ["cuda"]
# what = "Flash attention: online softmax between two products of tiles."
# ///
import tilelang
import tilelang.language as T
import torch.nn as nn


@tilelang.jit(out_idx=[-1])
def attention(heads, length, size, block_m=64, block_n=64, threads=128):
    dtype = "float16"
    scale = size**-0.5 * 1.44269504  # of powers of two

    @T.prim_func
    def main(
        q: T.Tensor((heads, length, size), dtype),
        k: T.Tensor((heads, length, size), dtype),
        v: T.Tensor((heads, length, size), dtype),
        out: T.Tensor((heads, length, size), dtype),
    ):
        with T.Kernel(T.ceildiv(length, block_m), heads, threads=threads) as (bx, head):
            queries = T.alloc_shared((block_m, size), dtype)
            keys = T.alloc_shared((block_n, size), dtype)
            values = T.alloc_shared((block_n, size), dtype)
            scores = T.alloc_fragment((block_m, block_n), "float32")
            weights = T.alloc_fragment((block_m, block_n), dtype)
            mean = T.alloc_fragment((block_m, size), "float32")
            top = T.alloc_fragment((block_m,), "float32")
            before = T.alloc_fragment((block_m,), "float32")
            shrunk = T.alloc_fragment((block_m,), "float32")
            part = T.alloc_fragment((block_m,), "float32")
            total = T.alloc_fragment((block_m,), "float32")
            T.copy(q[head, bx * block_m, 0], queries)
            T.clear(mean)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for step in T.Pipelined(T.ceildiv(length, block_n), num_stages=1):
                T.copy(k[head, step * block_n, 0], keys)
                T.clear(scores)
                T.gemm(queries, keys, scores, transpose_B=True)
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(block_m):
                    shrunk[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(block_m, block_n):
                    scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(block_m):
                    total[i] = total[i] * shrunk[i] + part[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(block_m, size):
                    mean[i, j] *= shrunk[i]
                T.copy(v[head, step * block_n, 0], values)
                T.gemm(weights, values, mean)
            for i, j in T.Parallel(block_m, size):
                mean[i, j] /= total[i]
            T.copy(mean, out[head, bx * block_m, 0])

    return main


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = {}

    def forward(self, q, k, v):
        length, size = q.shape[-2:]
        key = q.numel() // (length * size), length, size
        if key not in self.kernels:
            self.kernels[key] = attention(*key)
        return self.kernels[key](*(t.contiguous().view(key) for t in (q, k, v))).view(q.shape)
