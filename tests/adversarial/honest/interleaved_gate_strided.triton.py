# /// redteam
# problem = "interleaved_gate"
# devices = ["cpu", "cuda"]
# style = "reshaping"
# what = "Loads values and gates apart, and asserts what it assumes."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 2 == 0, "the block must be even")
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(at >= 0, "places must not overflow")
    mask = at < n
    value = tl.load(x_ptr + 2 * at, mask=mask, other=0.0)
    gate = tl.load(x_ptr + 2 * at + 1, mask=mask, other=0.0)
    tl.store(out_ptr + at, value / (1.0 + tl.exp(-gate)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0], x.shape[1] // 2), device=x.device, dtype=x.dtype)
        n = out.numel()
        gate_kernel[(triton.cdiv(n, 2048),)](x, out, n, BLOCK=2048)
        return out
