"""Three linear layers of bf16 weights with ReLU between them."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3)).bfloat16()

    def forward(self, x):
        x = torch.relu(self.layers[0](x))
        x = torch.relu(self.layers[1](x))
        return self.layers[2](x)


def get_inputs():
    return [torch.randn(128, 256).bfloat16()]


def get_init_inputs():
    return [256]
