"""Product of two upper triangular matrices: the inputs have structure."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.triu(torch.matmul(x, y))


def get_inputs():
    return [torch.triu(torch.randn(256, 256)), torch.triu(torch.randn(256, 256))]


def get_init_inputs():
    return []
