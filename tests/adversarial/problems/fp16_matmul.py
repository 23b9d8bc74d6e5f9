"""Product of a matrix and a transposed one, in fp16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.matmul(x, y.t())


def get_inputs():
    return [torch.randn(512, 256, dtype=torch.float16), torch.randn(384, 256, dtype=torch.float16)]


def get_init_inputs():
    return []
