"""Root-mean-square norm of rows in fp16, with a weight."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features, dtype=torch.float16) + 0.5)

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def get_inputs():
    return [torch.randn(8192, 4096, dtype=torch.float16)]


def get_init_inputs():
    return [4096, 1e-5]
