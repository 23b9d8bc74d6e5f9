"""The sum of each row of bf16 numbers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randn(64, 64).bfloat16()]


def get_init_inputs():
    return []
