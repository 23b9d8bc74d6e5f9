"""Fractions are cut off."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.trunc(x)


def get_inputs():
    return [torch.randn(256, 512) * 8]


def get_init_inputs():
    return []
