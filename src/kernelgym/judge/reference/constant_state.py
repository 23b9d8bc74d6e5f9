"""Constant state of a model, and secret values to replace it.

A kernel that ignores a LayerNorm's ones and zeros, or a BatchNorm's running statistics, is right
under every seed. If the ruleset says so, the judge replaces such state by secret values, on both
sides and by name. The values lie around the constant unless it is zero, so that positive state
stays positive.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

__all__ = ["constant_state", "has_variances", "put_state", "vary"]

_VARIANCE = "running_var"
_SMALL_SHARE = 0.25
_LARGEST = 0.01
"""Factor that small variances are multiplied by at most."""


def constant_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return floating-point parameters and buffers whose elements are all equal."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        if not value.numel() or id(value) in seen:  # tied: one value, under its first name
            continue
        seen.add(id(value))
        first = value.detach().reshape(-1)[0]
        if bool(first.isfinite()) and bool((value.detach() == first).all()):
            found[name] = value.detach()
    return found


def has_variances(constants: Mapping[str, torch.Tensor]) -> bool:
    """Return True if a running variance is among the constants."""
    return any(name.endswith(_VARIANCE) for name in constants)


def vary(
    constants: Mapping[str, torch.Tensor], seed: int, smallest_variance: float = 1.0
) -> dict[str, torch.Tensor]:
    """Return random values, by name, that replace the given constants.

    They differ from a constant by at most half of it, from zero by at most 0.5. They are contiguous
    CPU tensors of the constants' types.

    Args:
        constants: From `constant_state`.
        seed: Decides the values.
        smallest_variance: Where below 1, about a quarter of a running variance's elements, one at
            least, are this factor to 0.01 times as large: a layer without its eps then gives other
            values.
    """
    source = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, value in constants.items():
        unit = torch.rand(value.shape, generator=source).sub_(0.5)
        centre = float(value.reshape(-1)[0])
        unit = unit.add_(1).mul_(centre) if centre else unit
        if smallest_variance < 1 and name.endswith(_VARIANCE):
            chosen = torch.rand(value.shape, generator=source) < _SMALL_SHARE
            chosen.view(-1)[0] |= not chosen.any()
            share = torch.rand(value.shape, generator=source)
            shrunk = _LARGEST * (smallest_variance / _LARGEST) ** share
            unit = torch.where(chosen, unit * shrunk, unit)
        drawn[name] = unit.to(value.dtype)
    return drawn


def put_state(model: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Copy values into a model's state, by name and in place."""
    if not values:
        return
    state = model.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, value in values.items():
            state[name].copy_(value)
