# /// redteam
# problem = "conv2d"
# devices = ["cpu", "cuda"]
# what = "torch unfolds the image, and its kernel multiplies by the weights."
# ///
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def product_kernel(
    columns, weight, bias, out, pixels, inner, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):
    image, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channel, inside = tl.arange(0, CHANNELS), at < pixels
    total = tl.zeros((CHANNELS, BLOCK), dtype=tl.float32) + tl.load(bias + channel)[:, None]
    for i in range(inner):
        value = tl.load(columns + (image * inner + i) * pixels + at, mask=inside, other=0.0)
        total += tl.load(weight + channel * inner + i)[:, None] * value[None, :]
    places = (image * CHANNELS + channel[:, None]) * pixels + at[None, :]
    tl.store(out + places, total, mask=inside[None, :])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)

    def forward(self, x):
        columns = F.unfold(x, self.conv.kernel_size, padding=1)
        batch, inner, pixels = columns.shape
        channels = self.conv.out_channels
        out = x.new_empty(batch, channels, *x.shape[2:])
        product_kernel[(batch, triton.cdiv(pixels, 256))](
            columns,
            self.conv.weight,
            self.conv.bias,
            out,
            pixels,
            inner,
            CHANNELS=channels,
            BLOCK=256,
        )
        return out
