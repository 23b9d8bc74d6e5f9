# /// redteam
# problem = "row_sum"
# devices = ["cuda"]
# what = "Compiled with TVM FFI: the compiled function takes torch's tensors themselves."
# ///
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings import driver as cuda
from cutlass.cute.runtime import from_dlpack

WARPS = 4


@cute.kernel
def row_sum_kernel(x: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = block * WARPS + thread // 32
    if row < x.shape[0]:
        total = cutlass.Float32(0.0)
        for c in range(thread % 32, x.shape[1], 32):
            total += x[row, c]
        total = cute.arch.warp_reduction_sum(total)
        if thread % 32 == 0:
            out[row] = total


@cute.jit
def row_sum(x: cute.Tensor, out: cute.Tensor, stream: cuda.CUstream):
    row_sum_kernel(x, out).launch(
        grid=(cute.ceil_div(x.shape[0], WARPS), 1, 1), block=(32 * WARPS, 1, 1), stream=stream
    )


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = None

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], device=x.device)
        if self.compiled is None:
            given = [from_dlpack(t, enable_tvm_ffi=True).mark_layout_dynamic() for t in (x, out)]
            stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
            self.compiled = cute.compile(row_sum, *given, stream, options="--enable-tvm-ffi")
        self.compiled(x, out)
        return out
