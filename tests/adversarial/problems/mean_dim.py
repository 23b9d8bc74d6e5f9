"""Mean over the middle dimension."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.mean(x, dim=1)


def get_inputs():
    return [torch.randn(16, 128, 64)]


def get_init_inputs():
    return []
