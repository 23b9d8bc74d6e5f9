# /// redteam
# problem = "mean_dim"
# devices = ["cpu", "cuda"]
# style = "constexpr_globals"
# what = "Reads sizes from globals that are constexpr."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl

LENGTH = tl.constexpr(128)
WIDTH: tl.constexpr = tl.constexpr(64)


@triton.jit
def mean_kernel(x_ptr, out_ptr):
    step = tl.arange(0, LENGTH)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    batch = tl.program_id(0)
    x = tl.load(x_ptr + batch * LENGTH * WIDTH + step * WIDTH + column)
    tl.store(out_ptr + batch * WIDTH + tl.arange(0, WIDTH), tl.sum(x, axis=0) / LENGTH)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0], x.shape[2]), device=x.device, dtype=x.dtype)
        mean_kernel[(x.shape[0],)](x, out)
        return out
