# /// redteam
# problem = "attention"
# devices = ["cuda"]
# what = "A warp a query: online softmax over the keys, the head's values spread over the lanes."
# ///
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

WARPS = 4


@cute.kernel
def attention_kernel(
    q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor, scale: cutlass.Float32
):
    thread, _, _ = cute.arch.thread_idx()
    block, head, _ = cute.arch.block_idx()
    lane, row = thread % 32, block * WARPS + thread // 32  # a head holds 32 values: one a lane
    if row < q.shape[1]:
        query = q[head, row, lane] * scale
        top, total, mean = -cutlass.Float32.inf, cutlass.Float32(0.0), cutlass.Float32(0.0)
        for key in range(k.shape[1]):
            score = cute.arch.warp_reduction_sum(query * k[head, key, lane])
            higher = cute.arch.fmax(top, score)
            shrunk, weight = cute.math.exp(top - higher), cute.math.exp(score - higher)
            total = total * shrunk + weight
            mean = mean * shrunk + weight * v[head, key, lane]
            top = higher
        out[head, row, lane] = mean / total


@cute.jit
def attention(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    out: cute.Tensor,
    scale: cutlass.Float32,
    stream: cuda.CUstream,
):
    grid = (cute.ceil_div(q.shape[1], WARPS), q.shape[0], 1)
    attention_kernel(q, k, v, out, scale).launch(grid=grid, block=(32 * WARPS, 1, 1), stream=stream)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = None

    def forward(self, q, k, v):
        size = q.shape[-1]
        assert size == 32
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        heads = [t.contiguous().view(-1, t.shape[-2], size) for t in (q, k, v, out)]
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t).mark_layout_dynamic() for t in heads]
        scale = cutlass.Float32(size**-0.5)
        if self.compiled is None:
            self.compiled = cute.compile(attention, *arguments, scale, stream)
        self.compiled(*arguments, scale, stream)
        return out
