"""Linear layer with fp32 weights on bf16 inputs, computed and returned in fp32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return self.linear(x.float())


def get_inputs():
    return [torch.randn(64, 192, dtype=torch.bfloat16)]


def get_init_inputs():
    return [192, 96]
