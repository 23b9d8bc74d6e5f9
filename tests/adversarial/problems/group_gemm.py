"""Products of three pairs of matrices of different sizes."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b, c, x, y, z):
        return torch.matmul(a, x), torch.matmul(b, y), torch.matmul(c, z)


def get_inputs():
    sizes = [(128, 64, 96), (64, 128, 64), (96, 32, 128)]
    left = [torch.randn(m, k) for m, n, k in sizes]
    return left + [torch.randn(k, n) for m, n, k in sizes]


def get_init_inputs():
    return []
