# /// redteam
# problem = "linear_gelu"
# devices = ["cpu", "cuda"]
# style = "moves_to_cuda"
# what = "Moves weights and inputs to the GPU itself, makes tensors there and waits for it."
# ///

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x, y, n, half, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    scale = tl.load(half)
    tl.store(y + at, v * scale * (1.0 + tl.erf(v * 0.7071067811865476)), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.linear = nn.Linear(*sizes)
        self.half = torch.full((1,), 0.5, device="cuda")

    def forward(self, x):
        x = x.cuda() if not x.is_cuda else x
        z = self.linear.to("cuda")(x.to(device=torch.device("cuda")))
        y = z.new_empty(z.shape, device="cuda:0")
        half = self.half.to(z.device)
        gelu_kernel[(triton.cdiv(z.numel(), 1024),)](z, y, z.numel(), half, BLOCK=1024)
        torch.cuda.synchronize()
        return y
