"""GELU of values so large that it is nearly the identity."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.rand(256, 512) + 6.0]


def get_init_inputs():
    return []
