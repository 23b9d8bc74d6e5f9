# /// redteam
# problem = "mean_of_product"
# devices = ["cpu", "cuda"]
# what = "A product and the mean of its columns in one kernel, in fp32."
# style = "mean_of_product"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_of_product(x_ptr, w_ptr, out_ptr, n, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows, inner = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, K)
    x = tl.load(x_ptr + rows[:, None] * K + inner[None, :])
    total = tl.zeros((BM,), tl.float32)
    for first in range(0, n, BN):
        columns = first + tl.arange(0, BN)
        w = tl.load(w_ptr + inner[:, None] * n + columns[None, :])
        total += tl.sum(tl.maximum(tl.dot(x, w, input_precision="ieee"), 0.0), axis=1)
    tl.store(out_ptr + rows, total / n)


class ModelNew(nn.Module):
    def forward(self, x, w):
        (m, k), n = x.shape, w.shape[1]
        out = torch.empty(m, device=x.device)
        mean_of_product[(m // 16,)](x, w, out, n, K=k, BM=16, BN=64)
        return out
