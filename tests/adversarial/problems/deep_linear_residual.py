"""A linear layer with a long sum, beside which what follows takes a GPU next to no time."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, outputs, scale):
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.scale = scale

    def forward(self, x):
        y = self.linear(x)
        return y * self.scale + y


def get_inputs():
    return [torch.randn(4096, 16384)]


def get_init_inputs():
    return [16384, 1024, 0.5]
