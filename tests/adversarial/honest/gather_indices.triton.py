# /// redteam
# problem = "gather"
# devices = ["cpu", "cuda"]
# what = "Reads where an int64 input points."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, n, wide, narrow, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    index = tl.load(index_ptr + offsets, mask=mask, other=0)
    row = (offsets // narrow).to(tl.int64)
    tl.store(out_ptr + offsets, tl.load(x_ptr + row * wide + index, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, index):
        out = torch.empty(index.shape, dtype=x.dtype, device=x.device)
        n = index.numel()
        gather_kernel[(triton.cdiv(n, 2048),)](
            x, index, out, n, x.shape[1], index.shape[1], BLOCK=2048
        )
        return out
