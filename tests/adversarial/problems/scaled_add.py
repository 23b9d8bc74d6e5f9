"""x + alpha * y; one input is a Python number."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y, alpha):
        return x + alpha * y


def get_inputs():
    return [torch.randn(256, 512), torch.randn(256, 512), 1.75]


def get_init_inputs():
    return []
