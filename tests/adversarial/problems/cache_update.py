"""A cache in which one row is replaced by scaled values."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, cache, row):
        out = cache.clone()
        out[100] = row * torch.sigmoid(row)
        return out


def get_inputs():
    return [torch.randn(256, 512), torch.randn(512)]


def get_init_inputs():
    return []
