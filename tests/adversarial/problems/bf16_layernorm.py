"""Layer normalisation with weights of its own, all in bf16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(96, 320, dtype=torch.bfloat16)]


def get_init_inputs():
    return [320]
