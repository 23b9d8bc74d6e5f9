"""Rows scaled by the mean of a table of scales, which starts as ones."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, entries, features):
        super().__init__()
        self.table = nn.Parameter(torch.ones(entries, features))

    def forward(self, x):
        return x * self.table.mean(0)


def get_inputs():
    return [torch.randn(64, 2048)]


def get_init_inputs():
    return [4096, 2048]
