"""Constant state of a model, and secret values in its place.

A LayerNorm's ones and zeros, a BatchNorm's running statistics: whoever skips them is right under
every seed. Under rules that say so they are replaced, on both sides and by name, by values of the
same kind: around what was there if that was not zero, so that what is positive stays positive.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

__all__ = ["constant_state", "put_state", "vary"]


def constant_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the floating-point parameters and buffers whose elements are all one number."""
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


def vary(constants: Mapping[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Draw what takes their place: within half of a constant around it, or of one around zero.

    The values lie on the CPU, contiguous, in the constants' types.
    """
    source = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, value in constants.items():
        unit = torch.rand(value.shape, generator=source).sub_(0.5)
        centre = float(value.reshape(-1)[0])
        drawn[name] = (unit.add_(1).mul_(centre) if centre else unit).to(value.dtype)
    return drawn


def put_state(model: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Copy values into the state of those names, in place."""
    if not values:
        return
    state = model.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, value in values.items():
            state[name].copy_(value)
