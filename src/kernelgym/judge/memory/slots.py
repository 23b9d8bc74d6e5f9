"""Slots, where one call's inputs and outputs lie in the memory that both sides map, and windows.

A window is a run of calls, each on a slot of its own, that the trusted side's clock goes round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.memory.arena import Arena, Region, encode

__all__ = ["Slot", "Window", "alike", "encode_all", "fill"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Room for one call: where its inputs and outputs lie."""

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    regions: tuple[Region, ...]
    """Of the outputs."""


@dataclass(frozen=True, slots=True)
class Window:
    """What one timed window gave."""

    window_ms: float
    """By this side's clock, from the request to its end."""
    claimed_ms: float
    """What the candidate's process says the device took for the calls; 0.0 if it says nothing."""
    layout_ms: float
    """What laying out the values took before, on a device; 0.0 elsewhere."""
    results: list[Any]
    """The candidate's descriptions of its outputs."""
    kept: dict[int, list[torch.Tensor]]
    """Copies of the outputs of the calls that were asked for."""


def alike(tensors: list[torch.Tensor], views: tuple[torch.Tensor, ...]) -> bool:
    """Say whether tensors have the types, shapes and strides of others."""
    return len(tensors) == len(views) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
        for a, b in zip(tensors, views, strict=True)
    )


def encode_all(values: list[Any], place: Callable[[torch.Tensor], Region]) -> list[Any]:
    """Encode arguments for a candidate; `place` gives each tensor its region.

    Raises:
        JudgeError: If one cannot be handed to another process.
    """
    try:
        return [encode(value, place) for value in values]
    except TypeError as error:
        raise JudgeError(f"this problem cannot be judged: {error}") from None


def fill(arena: Arena, tensor: torch.Tensor) -> Region:
    """Give a tensor a region of its own, and copy it there."""
    region = arena.place(tensor)
    arena.view(region).copy_(tensor)
    return region
