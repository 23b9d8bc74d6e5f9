# /// redteam
# problem = "batchnorm_relu"
# devices = ["cpu", "cuda"]
# what = "Uses the batch's statistics and the layer's weights, and leaves running statistics alone."
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def batchnorm_relu(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    channels,
    pixels,
    eps,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    channel = tl.program_id(0)
    image = tl.arange(0, BATCH)
    pixel = tl.arange(0, BLOCK)
    places = (image[:, None] * channels + channel) * pixels + pixel[None, :]
    mask = pixel[None, :] < pixels
    x = tl.load(x_ptr + places, mask=mask, other=0.0)
    count = BATCH * pixels
    mean = tl.sum(tl.sum(x, axis=1), axis=0) / count
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(tl.sum(centred * centred, axis=1), axis=0) / count
    scale = tl.load(weight_ptr + channel) / tl.sqrt(variance + eps)
    y = centred * scale + tl.load(bias_ptr + channel)
    tl.store(y_ptr + places, tl.maximum(y, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        batch, channels, height, width = x.shape
        y = torch.empty_like(x)
        pixels = height * width
        batchnorm_relu[(channels,)](
            x,
            self.norm.weight,
            self.norm.bias,
            y,
            channels,
            pixels,
            self.norm.eps,
            BATCH=batch,
            BLOCK=triton.next_power_of_2(pixels),
            num_warps=8,
        )
        return y
