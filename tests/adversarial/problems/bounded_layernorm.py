"""Layer normalisation, squashed and scaled by a buffer to the domain of an arc sine."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.register_buffer("bound", torch.ones(features))

    def forward(self, x):
        return torch.asin(self.bound * torch.tanh(self.norm(x)))


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [256]
