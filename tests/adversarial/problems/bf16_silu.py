"""SiLU of a tensor that is drawn in fp32 and rounded to bf16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.silu(x)


def get_inputs():
    return [torch.randn(128, 512).bfloat16()]


def get_init_inputs():
    return []
