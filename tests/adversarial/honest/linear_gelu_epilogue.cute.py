# /// redteam
# problem = "linear_gelu"
# devices = ["cuda"]
# what = "Product, bias and GELU in one kernel: the epilogue works on the sums in registers."
# ///
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

TILE = 16


@cute.kernel
def linear_gelu_kernel(x: cute.Tensor, weight: cute.Tensor, bias: cute.Tensor, out: cute.Tensor):
    tx, ty, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    rows, k, columns = x.shape[0], x.shape[1], weight.shape[0]
    storage = cutlass.utils.SmemAllocator()
    tile = cute.make_layout((TILE, TILE), stride=(TILE + 1, 1))
    left = storage.allocate_tensor(cutlass.Float32, tile)
    right = storage.allocate_tensor(cutlass.Float32, tile)
    row, column, other = by * TILE + ty, bx * TILE + tx, bx * TILE + ty
    total = cutlass.Float32(0.0)
    for start in range(0, k, TILE):
        left[ty, tx] = 0.0
        right[ty, tx] = 0.0
        if start + tx < k:
            if row < rows:
                left[ty, tx] = x[row, start + tx]
            if other < columns:
                right[ty, tx] = weight[other, start + tx]
        cute.arch.sync_threads()
        for i in cutlass.range_constexpr(TILE):
            total += left[ty, i] * right[tx, i]
        cute.arch.sync_threads()
    if row < rows and column < columns:
        value = total + bias[column]
        out[row, column] = 0.5 * value * (1.0 + cute.math.erf(value * 0.7071067811865476))


@cute.jit
def linear_gelu(
    x: cute.Tensor, weight: cute.Tensor, bias: cute.Tensor, out: cute.Tensor, stream: cuda.CUstream
):
    grid = (cute.ceil_div(out.shape[1], TILE), cute.ceil_div(out.shape[0], TILE), 1)
    linear_gelu_kernel(x, weight, bias, out).launch(grid=grid, block=(TILE, TILE, 1), stream=stream)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.compiled = None

    def forward(self, x):
        x = x.contiguous()
        weight, bias = self.linear.weight.detach(), self.linear.bias.detach()
        out = torch.empty(x.shape[0], weight.shape[0], device=x.device)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t).mark_layout_dynamic() for t in (x, weight, bias, out)]
        if self.compiled is None:
            self.compiled = cute.compile(linear_gelu, *arguments, stream)
        self.compiled(*arguments, stream)
        return out
