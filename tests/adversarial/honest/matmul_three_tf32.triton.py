# /// redteam
# problem = "matmul"
# devices = ["cpu", "cuda"]
# style = "precision_of_dot"
# what = "Multiplies in three passes of TF32, which are nearly exact."
# ///
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    columns = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        across, down = k + tl.arange(0, BK)[None, :], k + tl.arange(0, BK)[:, None]
        a = tl.load(a_ptr + rows * K + across, mask=(rows < M) & (across < K), other=0.0)
        b = tl.load(b_ptr + down * N + columns, mask=(down < K) & (columns < N), other=0.0)
        total = tl.dot(a, b, acc=total, input_precision="tf32x3", out_dtype=tl.float32)
    tl.store(c_ptr + rows * N + columns, total, mask=(rows < M) & (columns < N))


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = x.new_empty((m, n))
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
        matmul_kernel[grid](x, y, out, m, n, k, BM=64, BN=64, BK=32, num_warps=4, num_stages=2)
        return out
