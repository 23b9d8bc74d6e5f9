# /// redteam
# problem = "layernorm"
# devices = ["cpu", "cuda"]
# style = "tutorial_layernorm"
# what = "Goes through a row three times, and keeps mean and deviation."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    _mean = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        _mean += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    rstd = 1 / tl.sqrt(tl.sum(_var, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N
        w, b = tl.load(W + cols, mask=mask), tl.load(B + cols, mask=mask)
        x_hat = (tl.load(X + cols, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        tl.store(Y + cols, x_hat * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        rows, width = x.shape
        y = torch.empty_like(x)
        mean, rstd = (torch.empty(rows, device=x.device) for _ in range(2))
        norm_kernel[(rows,)](
            x, y, *self.norm.parameters(), mean, rstd, x.stride(0), width, self.norm.eps, BLOCK=128
        )
        return y
