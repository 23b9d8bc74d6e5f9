"""Dropout in train mode, one in ten."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        return self.dropout(x)


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return [0.1]
