"""Define slots and windows, and lay arguments out in shared memory.

A slot is the room for one call's inputs and outputs in memory that both the worker and the
candidate map. A window is a run of calls, each on a slot of its own, timed as a whole by the
worker's clock.

Not covered: running windows (`kernelgym.judge.session.session`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelgym.errors import JudgeError
from kernelgym.judge.memory.arena import Arena, ArenaRegion, encode
from kernelgym.judge.processes.threads import RunTimes


@dataclass(frozen=True, slots=True)
class CallSlot:
    """Memory for the inputs and outputs of one call."""

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    regions: tuple[ArenaRegion, ...]
    """Regions of the outputs in their arena."""


@dataclass(frozen=True, slots=True)
class TimedWindow:
    """The times and outputs of one timed window."""

    window_ms: float
    """Time by the worker's clock, from resuming the candidate to the end of the window."""
    claimed_ms: float
    """Device time of the calls as the candidate reports it; 0.0 if it reports none."""
    layout_ms: float
    """Time to copy the values into the slots before the window, on a device; 0.0 elsewhere."""
    results: list[Any]
    """The candidate's descriptions of its outputs."""
    kept: dict[int, list[torch.Tensor]]
    """Copies of outputs by index of the call, for the calls that the caller asked for."""
    run_times: tuple[RunTimes | None, RunTimes | None] = (None, None)
    """Processor times of the candidate's threads before and after the window; None on a GPU."""


def alike(tensors: list[torch.Tensor], views: tuple[torch.Tensor, ...]) -> bool:
    """Return True if tensors have the types, shapes and strides of the tensors in a slot."""
    return len(tensors) == len(views) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
        for a, b in zip(tensors, views, strict=True)
    )


def encode_all(values: list[Any], place: Callable[[torch.Tensor], ArenaRegion]) -> list[Any]:
    """Encode arguments for a candidate; `place` gives each tensor its region.

    Raises:
        JudgeError: If an argument cannot be sent to another process.
    """
    try:
        return [encode(value, place) for value in values]
    except TypeError as error:
        raise JudgeError(f"this problem cannot be judged: {error}") from None


def fill(arena: Arena, tensor: torch.Tensor) -> ArenaRegion:
    """Copy a tensor to a new region of an arena; return the copy."""
    region = arena.place(tensor)
    arena.view(region).copy_(tensor)
    return region
