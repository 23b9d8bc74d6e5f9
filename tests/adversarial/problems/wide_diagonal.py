"""Long vectors laid out as diagonal matrices."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.diag_embed(x)


def get_inputs():
    return [torch.randn(4, 1024)]


def get_init_inputs():
    return []
