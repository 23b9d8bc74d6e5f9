"""Product of two nearly square matrices."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.matmul(x, y)


def get_inputs():
    return [torch.randn(256, 224), torch.randn(224, 256)]


def get_init_inputs():
    return []
