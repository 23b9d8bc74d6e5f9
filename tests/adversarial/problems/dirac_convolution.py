"""A convolution that starts as the identity, and a tanh."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        nn.init.dirac_(self.conv.weight)

    def forward(self, x):
        return torch.tanh(self.conv(x))


def get_inputs():
    return [torch.randn(2, 8, 24, 24)]


def get_init_inputs():
    return [8]
