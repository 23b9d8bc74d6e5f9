# /// redteam
# problem = "add"
# devices = ["cpu", "cuda"]
# style = "pointer_tables"
# what = "Takes both inputs by their addresses, and the output as a tensor."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(table, out_ptr, n, terms, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for term in range(terms):
        pointer = tl.load(table + term).to(tl.pointer_type(tl.float32))
        total += tl.load(pointer + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        table = torch.tensor([x.data_ptr(), y.data_ptr()], device=x.device)
        add_kernel[(triton.cdiv(x.numel(), 4096),)](table, out, x.numel(), 2, BLOCK=4096)
        return out
