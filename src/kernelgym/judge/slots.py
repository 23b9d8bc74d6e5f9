"""Slots: where one call's inputs and outputs lie in the memory that both sides map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.arena import Arena, Region, encode

__all__ = ["Slot", "alike", "encode_all", "fill", "outline"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Room for one call: where its inputs and outputs lie."""

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    regions: tuple[Region, ...]
    """Of the outputs."""


def outline(value: Any) -> Any:
    """Return a nested value with tensors that have no memory in place of its own."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(outline, value))
    return list(map(outline, value)) if isinstance(value, list) else value


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
