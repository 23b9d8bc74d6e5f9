"""Sum of each row of a matrix in fp64."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randn(128, 600, dtype=torch.float64)]


def get_init_inputs():
    return []
