"""Linear layer whose weights' rows are normalised and scaled in every call."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features))
        self.scale = nn.Parameter(torch.ones(out_features, 1))

    def forward(self, x):
        weight = self.scale * F.normalize(self.weight, dim=1)
        return torch.matmul(x, weight.t())


def get_inputs():
    return [torch.randn(16, 4096)]


def get_init_inputs():
    return [4096, 4096]
