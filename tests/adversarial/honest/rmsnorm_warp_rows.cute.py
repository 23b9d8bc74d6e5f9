# /// redteam
# problem = "rmsnorm"
# devices = ["cuda"]
# what = "A warp a row, which holds its row in registers between two sweeps."
# ///
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

WARPS = 4


@cute.kernel
def rmsnorm_kernel(
    x: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    eps: cutlass.Float32,
    columns: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    lane, row = thread % 32, block * WARPS + thread // 32
    if row < x.shape[0]:
        count = cute.ceil_div(columns, 32)
        values = cute.make_rmem_tensor(count, cutlass.Float32)
        total = cutlass.Float32(0.0)
        for i in cutlass.range_constexpr(count):
            c = i * 32 + lane
            values[i] = 0.0
            if c < columns:
                values[i] = x[row, c]
            total += values[i] * values[i]
        total = cute.arch.warp_reduction_sum(total)
        scale = cute.math.sqrt(total / columns + eps)
        for i in cutlass.range_constexpr(count):
            c = i * 32 + lane
            if c < columns:
                y[row, c] = values[i] / scale * weight[c]


@cute.jit
def rmsnorm(
    x: cute.Tensor,
    weight: cute.Tensor,
    y: cute.Tensor,
    eps: cutlass.Float32,
    columns: cutlass.Constexpr,
    stream: cuda.CUstream,
):
    rmsnorm_kernel(x, weight, y, eps, columns).launch(
        grid=(cute.ceil_div(x.shape[0], WARPS), 1, 1), block=(32 * WARPS, 1, 1), stream=stream
    )


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))
        self.compiled = None

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t).mark_layout_dynamic() for t in (x, self.weight.detach(), y)]
        eps = cutlass.Float32(self.eps)
        if self.compiled is None:
            self.compiled = cute.compile(rmsnorm, *arguments, eps, x.shape[1], stream)
        self.compiled(*arguments, eps, stream)
        return y
