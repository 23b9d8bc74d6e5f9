"""A product with a weight that starts as the product of two narrow matrices."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, rank):
        super().__init__()
        left, right = torch.randn(features, rank), torch.randn(rank, features)
        self.weight = nn.Parameter(left @ right)

    def forward(self, x):
        return torch.matmul(x, self.weight)


def get_inputs():
    return [torch.randn(16, 2048)]


def get_init_inputs():
    return [2048, 16]
