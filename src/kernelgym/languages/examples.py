"""The worked examples that prompts show: two references, with a kernel in each language.

They show the form of an answer (launching, building, keeping parameters), not tricks, and solve no
suite's problem. A language's kernels for them stand in its own file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """A reference program and a correct kernel for it."""

    title: str
    reference: str
    kernel: str


_BLEND = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, a, b):
        return torch.sigmoid(a) * b + self.weight * a


def get_inputs():
    return [torch.randn(37, 129), torch.randn(37, 129)]


def get_init_inputs():
    return [0.25]
"""

_ROW_MAX = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return (x.abs() * self.scale).amax(dim=1)


def get_inputs():
    return [torch.randn(50, 300)]


def get_init_inputs():
    return [300]
"""


def worked_examples(blend: str, row_max: str) -> tuple[WorkedExample, ...]:
    """Return a language's worked examples, the simplest first.

    Args:
        blend: The language's kernel for the gated blend.
        row_max: The language's kernel for the scaled maximum over each row.
    """
    return (
        WorkedExample("a gated blend, element by element", _BLEND, blend),
        WorkedExample("a scaled maximum over each row, with a parameter", _ROW_MAX, row_max),
    )
