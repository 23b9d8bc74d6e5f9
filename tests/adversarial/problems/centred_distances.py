"""Distances between centred rows of two matrices."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        x = x - x.mean(dim=1, keepdim=True)
        y = y - y.mean(dim=1, keepdim=True)
        squares = (x * x).sum(dim=1, keepdim=True) + (y * y).sum(dim=1)
        return torch.sqrt(torch.clamp(squares - 2.0 * torch.matmul(x, y.t()), min=0.0))


def get_inputs():
    return [torch.randn(2048, 4096), torch.randn(2048, 4096)]


def get_init_inputs():
    return []
