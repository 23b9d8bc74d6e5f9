# /// redteam
# problem = "deep_convolution"
# devices = ["cpu", "cuda"]
# what = "A convolution over very many channels, one running sum in fp32."
# style = "deep_convolution"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def convolve(
    x_ptr, w_ptr, out_ptr, channels, pixels, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    filters = tl.program_id(0) * BM + tl.arange(0, BM)
    places = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for first in range(0, channels, BK):
        inner = first + tl.arange(0, BK)
        w = tl.load(w_ptr + filters[:, None] * channels + inner[None, :])
        x = tl.load(x_ptr + inner[:, None] * pixels + places[None, :])
        acc += tl.dot(w, x, input_precision="ieee")
    tl.store(out_ptr + filters[:, None] * pixels + places[None, :], acc)


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 1, bias=False)

    def forward(self, x):
        weight = self.conv.weight
        filters, channels = weight.shape[:2]
        pixels = x.shape[2] * x.shape[3]
        out = torch.empty(1, filters, *x.shape[2:], device=x.device)
        convolve[(filters // 16, pixels // 32)](
            x, weight, out, channels, pixels, BM=16, BN=32, BK=128
        )
        return out
