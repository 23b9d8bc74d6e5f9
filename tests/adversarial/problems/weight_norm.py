"""A linear layer whose weight is a direction times a length (weight normalisation), and a ReLU."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        linear = nn.Linear(inputs, outputs)
        self.direction = nn.Parameter(linear.weight.detach().clone())
        self.length = nn.Parameter(self.direction.detach().norm(dim=1, keepdim=True))
        self.bias = nn.Parameter(linear.bias.detach().clone())

    def forward(self, x):
        weight = self.direction * (self.length / self.direction.norm(dim=1, keepdim=True))
        return torch.relu(x @ weight.t() + self.bias)


def get_inputs():
    return [torch.randn(128, 128)]


def get_init_inputs():
    return [128, 96]
