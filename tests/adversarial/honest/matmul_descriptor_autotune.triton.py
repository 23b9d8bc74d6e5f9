# /// redteam
# problem = "matmul"
# devices = ["cpu", "cuda"]
# style = "descriptors_tuned"
# what = "A hook sets the blocks of descriptors to those of the config."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def set_blocks(arguments):
    bm, bn, bk = arguments["BM"], arguments["BN"], arguments["BK"]
    arguments["a"].block_shape = [bm, bk]
    arguments["b"].block_shape = [bk, bn]
    arguments["c"].block_shape = [bm, bn]


CONFIGS = [
    triton.Config({"BM": bm, "BN": 64, "BK": 32}, num_warps=4, num_stages=2, pre_hook=set_blocks)
    for bm in (128, 64)
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total, input_precision="ieee")
    c.store([row, column], total)


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = torch.empty((m, n), device=x.device, dtype=x.dtype)
        any_block = [16, 16]
        a, b, c = (TensorDescriptor.from_tensor(tensor, any_block) for tensor in (x, y, out))
        matmul_kernel[lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))](
            a, b, c, m, n, k
        )
        return out
