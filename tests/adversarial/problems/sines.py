"""Sines of large arguments: features of many frequencies."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sin(x * torch.linspace(1.0, 3000.0, x.shape[-1], device=x.device))


def get_inputs():
    return [torch.rand(256, 512)]


def get_init_inputs():
    return []
