"""Mean cross entropy of logits against int64 classes; the output is a scalar."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, logits, targets):
        return F.cross_entropy(logits, targets)


def get_inputs():
    return [torch.randn(256, 128), torch.randint(0, 128, (256,))]


def get_init_inputs():
    return []
