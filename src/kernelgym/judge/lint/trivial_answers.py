"""Answers that take no work: zeros, constants, and inputs returned as outputs.

Answers are made for one part of an output at a time, since a kernel may choose each part of a
worthless output by itself. They are made from the first call's output, which is the most that a
kernel's author could know, and are then tried on further calls.

Not here: judging answers (`checks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelgym.judge.tensors import leaves_of

Answer = Callable[[list[Any]], Any]
"""Function of the leaves of a call's inputs that returns one part of an output."""


def trivial_answers(inputs: Any, output: Any) -> dict[str, list[list[Answer]]]:
    """Return answers to try for every part of an output, by reason."""
    given = leaves_of(inputs)
    parts = leaves_of(output)
    return {
        "zeros": [[_always(_zeros(part))] for part in parts],
        "constant": [[_always(value) for value in _constants(part)] for part in parts],
        "identity": [
            [_input(index, part) for index, item in enumerate(given) if _alike(item, part)]
            for part in parts
        ],
    }


def _always(value: Any) -> Answer:
    return lambda given: value


def _input(index: int, part: Any) -> Answer:
    def answer(given: list[Any]) -> Any:
        item = given[index]
        if not _alike(item, part):
            return None
        if not isinstance(part, torch.Tensor):
            return item
        # With the reference's strides: a kernel could restore them without work.
        return torch.empty_like(part).copy_(item.reshape(part.shape))

    return answer


def _alike(item: Any, part: Any) -> bool:
    """Return True if an input has the size of an output's part, so that returning it might pass."""
    if isinstance(part, torch.Tensor):
        return (
            isinstance(item, torch.Tensor)
            and item.dtype == part.dtype
            and item.numel() == part.numel()
        )
    return type(item) is type(part)


def _zeros(part: Any) -> Any:
    if isinstance(part, torch.Tensor):
        return torch.zeros_like(part)
    return type(part)(0) if isinstance(part, (bool, int, float)) else part


def _constants(part: Any) -> list[Any]:
    """Return constants that are close to all elements of an output, by several measures."""
    if not isinstance(part, torch.Tensor):
        return [part]
    if part.numel() == 0:
        return [part]
    flat = part.detach().reshape(-1)
    if part.is_complex():
        values = [complex(flat.mean().item())]
    elif part.is_floating_point():
        values = _middles(flat)
    elif part.dtype == torch.bool:
        values = [False, True]
    else:
        low, high = int(flat.min()), int(flat.max())
        values = [low, high, int(flat.median()), (low + high) // 2]
    return [torch.full_like(part, value) for value in dict.fromkeys(values)]


def _middles(flat: torch.Tensor) -> list[Any]:
    """Return the midpoint and the harmonic mean of the extremes, and the median, of an output.

    The midpoint is equally far from both extremes, the harmonic mean equally far relative to them.
    It is left out if the extremes do not have the same sign.
    """
    finite = flat[flat.isfinite()]
    if not finite.numel():
        return [float(flat[0])]
    low, high = float(finite.min()), float(finite.max())
    values = [(low + high) / 2, float(finite.median())]
    if low * high > 0.0:
        values.append(2.0 / (1.0 / low + 1.0 / high))
    return values
