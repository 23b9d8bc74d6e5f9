"""A checkout laid out like KernelBench's, whose problems are ours."""

from __future__ import annotations

from pathlib import Path

from kernelgym.types import Problem

__all__ = ["known_sigmoid", "write_checkout"]

_SIGMOID = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.special.expit(1 * x)


batch_size = {rows}  # one row per sample
dim = {columns}


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
"""


def known_sigmoid(rows: str = "4096", columns: str = "393216") -> Problem:
    """Return a module of ours with the constants of KernelBench's sigmoid."""
    source = _SIGMOID.format(rows=rows, columns=columns)
    return Problem("KernelBench/L1/21", "KernelBench", 1, "21_Sigmoid", source)


def write_checkout(folder: Path) -> Path:
    """Write a checkout in which only problem 21 has a small form."""
    ours = known_sigmoid("8", "16").source
    named = {
        "level1/21_Sigmoid": known_sigmoid().source,
        "level1/2_Ours": ours,
        "level2/1_Ours": ours.replace("1 *", "2 *"),
        "level3/11_VGG16": ours.replace("1 *", "3 *"),
        "level4/1_Ours": ours.replace("1 *", "4 *"),
    }
    for name, source in named.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(source)
    return folder
