"""Matrix divided by the root mean square of all of its elements."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x / torch.sqrt((x * x).mean() + 1e-6)


def get_inputs():
    return [torch.randn(2048, 4096)]


def get_init_inputs():
    return []
