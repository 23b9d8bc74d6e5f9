"""Product of two matrices of values between zero and one."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.matmul(x, y)


def get_inputs():
    return [torch.rand(256, 224), torch.rand(224, 256)]


def get_init_inputs():
    return []
