"""A student and a teacher that starts as its copy: the product of their two layers' outputs."""

import copy

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.student = nn.Linear(features, features)
        self.teacher = copy.deepcopy(self.student)

    def forward(self, x):
        return torch.tanh(self.student(x)) * torch.tanh(self.teacher(x))


def get_inputs():
    return [torch.randn(128, 128)]


def get_init_inputs():
    return [128]
