# /// redteam
# problem = "softmax"
# devices = ["cpu", "cuda"]
# style = "tutorial_persistent"
# what = "Programs go through rows in strides, with software pipelining."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
    out_ptr,
    x_ptr,
    x_stride,
    out_stride,
    rows,
    columns,
    BLOCK: tl.constexpr,
    num_stages: tl.constexpr,
):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=num_stages):
        at = tl.arange(0, BLOCK)
        mask = at < columns
        x = tl.load(x_ptr + row * x_stride + at, mask=mask, other=-float("inf"))
        power = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_stride + at, power / tl.sum(power, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        softmax_kernel[(min(rows, 64), 1, 1)](
            out, x, x.stride(0), out.stride(0), rows, columns, block, num_stages=2, num_warps=4
        )
        return out
