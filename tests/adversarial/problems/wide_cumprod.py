"""Running products of many factors between zero and one."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumprod(x, dim=1)


def get_inputs():
    return [torch.rand(2048, 4096)]


def get_init_inputs():
    return []
