"""Residual MLP block whose branch is scaled by a small parameter, as in CaiT and ConvNeXt."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)
        self.gamma = nn.Parameter(1e-6 * torch.ones(features))

    def forward(self, x):
        return x + self.gamma * self.down(F.gelu(self.up(x)))


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return [1024, 4096]
