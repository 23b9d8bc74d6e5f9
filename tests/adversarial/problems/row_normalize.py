"""Rows divided by their norms, or by an eps if that is larger."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=1)


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []
