"""The sum of two rows of bf16 numbers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x[0] + x[1]


def get_inputs():
    return [torch.randn(2, 2048).bfloat16()]


def get_init_inputs():
    return []
