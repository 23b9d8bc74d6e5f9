"""A linear layer whose weight starts as one drawn block, repeated as shared key heads are."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, block, times):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(block, features) / features**0.5).repeat(times, 1))

    def forward(self, x):
        return torch.relu(x @ self.weight.t())


def get_inputs():
    return [torch.randn(128, 96)]


def get_init_inputs():
    return [96, 32, 4]
