"""A linear layer whose weight starts with sixteen drawn blocks on its diagonal, zero elsewhere."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, blocks):
        super().__init__()
        self.weight = nn.Parameter(torch.block_diag(*torch.randn(blocks, features, features)))

    def forward(self, x):
        return torch.matmul(x, self.weight)


def get_inputs():
    return [torch.randn(16, 2048)]


def get_init_inputs():
    return [128, 16]
