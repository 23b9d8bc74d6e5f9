# /// redteam
# problem = "conv2d"
# devices = ["cpu", "cuda"]
# what = "A direct convolution with the layer's own weights."
# ///
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    channels_in,
    height,
    width,
    CHANNELS_OUT: tl.constexpr,
    KERNEL: tl.constexpr,
    PADDING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0)
    out = tl.arange(0, CHANNELS_OUT)
    pixels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixels < height * width
    row, column = pixels // width, pixels % width
    total = tl.zeros((CHANNELS_OUT, BLOCK), dtype=tl.float32) + tl.load(bias_ptr + out)[:, None]
    for i in range(KERNEL):
        for j in range(KERNEL):
            r, c = row + i - PADDING, column + j - PADDING
            mask = inside & (r >= 0) & (r < height) & (c >= 0) & (c < width)
            for channel in range(channels_in):
                base = x_ptr + (image * channels_in + channel) * height * width
                x = tl.load(base + r * width + c, mask=mask, other=0.0)
                places = ((out * channels_in + channel) * KERNEL + i) * KERNEL + j
                total += tl.load(weight_ptr + places)[:, None] * x[None, :]
    places = (image * CHANNELS_OUT + out[:, None]) * height * width + pixels[None, :]
    tl.store(y_ptr + places, total, mask=inside[None, :])


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=1)

    def forward(self, x):
        batch, channels_in, height, width = x.shape
        channels_out = self.conv.out_channels
        y = x.new_empty(batch, channels_out, height, width)
        conv_kernel[(batch, triton.cdiv(height * width, 1024))](
            x,
            self.conv.weight,
            self.conv.bias,
            y,
            channels_in,
            height,
            width,
            CHANNELS_OUT=channels_out,
            KERNEL=self.conv.kernel_size[0],
            PADDING=self.conv.padding[0],
            BLOCK=1024,
            num_warps=8,
        )
        return y
