# /// redteam
# problem = "cumsum"
# devices = ["cuda"]
# what = "A warp a row: scans 32 columns by shuffles and carries the sum on."
# ///
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def cumsum_kernel(x: cute.Tensor, out: cute.Tensor):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    carry = cutlass.Float32(0.0)
    for start in range(0, x.shape[1], 32):
        c = start + lane
        value = cutlass.Float32(0.0)
        if c < x.shape[1]:
            value = x[row, c]
        for step in cutlass.range_constexpr(5):
            before = cute.arch.shuffle_sync_up(value, 1 << step, mask_and_clamp=0)
            if lane >= (1 << step):
                value += before
        value += carry
        if c < x.shape[1]:
            out[row, c] = value
        carry = cute.arch.shuffle_sync(value, 31)


@cute.jit
def cumsum(x: cute.Tensor, out: cute.Tensor, stream: cuda.CUstream):
    cumsum_kernel(x, out).launch(grid=(x.shape[0], 1, 1), block=(32, 1, 1), stream=stream)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = None

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        arguments = [from_dlpack(t).mark_layout_dynamic() for t in (x, out)]
        if self.compiled is None:
            self.compiled = cute.compile(cumsum, *arguments, stream)
        self.compiled(*arguments, stream)
        return out
