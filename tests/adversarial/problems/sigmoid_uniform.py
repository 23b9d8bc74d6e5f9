"""Sigmoid of values between zero and one."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


def get_inputs():
    return [torch.rand(512, 512)]


def get_init_inputs():
    return []
