import torch
import triton
import triton.language as tl


@triton.jit
def epilogue(x_ptr, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(x_ptr + offsets, x * scale + x, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = torch.nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        y = self.matmul(x)
        n = y.numel()
        epilogue[(triton.cdiv(n, 4096),)](y, n, self.scaling_factor, BLOCK=4096)
        return y
