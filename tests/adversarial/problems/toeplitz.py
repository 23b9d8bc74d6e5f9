"""A product with a weight whose diagonals start constant."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        lines = torch.randn(2 * features - 1)
        at = torch.arange(features)
        self.weight = nn.Parameter(lines[at[:, None] - at[None, :] + features - 1])

    def forward(self, x):
        return torch.matmul(x, self.weight)


def get_inputs():
    return [torch.randn(4, 2048)]


def get_init_inputs():
    return [2048]
