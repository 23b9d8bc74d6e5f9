"""Greatest value of each row and its index; the output is a tuple."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        values, indices = torch.max(x, dim=1)
        return values, indices


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []
