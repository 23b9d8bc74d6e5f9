"""RMS normalisation of bf16 inputs by an fp32 weight, computed in fp32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
        return (wide * scale * self.weight).to(x.dtype)


def get_inputs():
    return [torch.randn(96, 256, dtype=torch.bfloat16)]


def get_init_inputs():
    return [256]
