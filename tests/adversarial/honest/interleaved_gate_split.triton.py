# /// redteam
# problem = "interleaved_gate"
# devices = ["cpu", "cuda"]
# style = "reshaping"
# what = "Parts values from gates by reshape and split."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pairs = tl.program_id(0) * BLOCK * 2 + tl.arange(0, BLOCK * 2)
    both = tl.reshape(tl.load(x_ptr + pairs, mask=pairs < 2 * n, other=0.0), (BLOCK, 2))
    value, gate = tl.split(both)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, value * tl.sigmoid(gate), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0], x.shape[1] // 2), device=x.device, dtype=x.dtype)
        n = out.numel()
        gate_kernel[(triton.cdiv(n, 2048),)](x, out, n, BLOCK=2048)
        return out
