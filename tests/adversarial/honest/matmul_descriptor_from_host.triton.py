# /// redteam
# problem = "matmul"
# devices = ["cpu", "cuda"]
# style = "descriptors_from_host"
# what = "Multiplies tiles that descriptors of the host load."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total, input_precision="ieee")
    c.store([row, column], total)


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = torch.empty((m, n), device=x.device, dtype=x.dtype)
        a = TensorDescriptor(x, x.shape, x.stride(), [64, 32])
        b = TensorDescriptor(y, y.shape, y.stride(), [32, 64])
        c = TensorDescriptor(out, out.shape, out.stride(), [64, 64])
        matmul_kernel[(triton.cdiv(m, 64), triton.cdiv(n, 64))](a, b, c, k, BM=64, BN=64, BK=32)
        return out
