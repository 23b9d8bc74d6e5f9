"""Sums of rows, in which values that are not finite count as zero."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.where(torch.isfinite(x), x, 0.0).sum(dim=1)


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
