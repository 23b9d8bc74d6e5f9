# /// redteam
# problem = "matmul"
# devices = ["cuda"]
# style = "descriptors_in_kernel"
# what = "Persistent programs load and store tiles by descriptors made in the kernel."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


def allocate(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda")


triton.set_allocator(allocate)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, B: tl.constexpr, BK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[B, BK])
    right = tl.make_tensor_descriptor(b, shape=[K, N], strides=[N, 1], block_shape=[BK, B])
    made = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    tiles_n = tl.cdiv(N, B)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, B) * tiles_n, tl.num_programs(0)):
        row, column = tile // tiles_n * B, tile % tiles_n * B
        total = tl.zeros((B, B), dtype=tl.float32)
        for k in range(0, K, BK):
            part = left.load([row, k]), right.load([k, column])
            total = tl.dot(part[0], part[1], total, input_precision="ieee")
        made.store([row, column], total)


class ModelNew(nn.Module):
    def forward(self, x, y):
        (m, k), n = x.shape, y.shape[1]
        out = torch.empty(m, n, device=x.device)
        matmul_kernel[(8,)](x, y, out, m, n, k, B=64, BK=32, num_stages=3)
        return out
