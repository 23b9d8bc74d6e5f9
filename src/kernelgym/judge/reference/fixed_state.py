"""Parameters and buffers that a model's constructor does not draw, and values to replace them.

A kernel that ignores a LayerNorm's ones, a BatchNorm's running statistics or that a weight is the
identity is right under every seed. If the ruleset says so, the judge replaces such state by secret
values, on both sides and by name. Two constructions from different random numbers tell which state
that is: what is equal in both is not drawn. Every value moves by a share of itself, so that its
sign stays, and zeros move by a share of the tensor's typical value, so that an identity loses its
zeros.

Not replaced: integers, booleans and complex numbers; masks, which are buffers of two values, unless
each row has a single one other than zero, as an identity's; what ``state_dict`` does not hold
(buffers with ``persistent=False``, plain attributes).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch

from kernelgym.judge.tensors import same_bytes

STRENGTHS = (0.5, 0.05, 0.005)
"""Largest changes to try, the first that the reference bears, as a share of a value."""
_VARIANCE = "running_var"
_SMALL_SHARE = 0.25
_LARGEST = 0.01
"""Factor that small variances are multiplied by at most."""
_FEW_OF, _FEW_IN_ORDER = 256, 4
"""One element in so many is replaced, or one of every other one in order."""
_FEW_ROWS = 16
"""One row in so many is replaced, in one column of so many: a kernel may look at whole rows, or at
whole columns, to see whether anything changed."""


def fixed_state(model: torch.nn.Module, other: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the floating-point parameters and buffers that do not depend on random numbers.

    Args:
        model: The model.
        other: The model constructed from other random numbers, on any device.
    """
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    others = other.state_dict()
    buffers = {id(buffer) for buffer in model.buffers()}
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        if not value.numel() or id(value) in seen:  # tied: one value, under its first name
            continue
        seen.add(id(value))
        held = value.detach()
        if id(value) in buffers and _is_mask(held):
            continue
        again = others.get(name)
        if again is not None and same_bytes(held, again.to(held.device)) and _is_useful(held):
            found[name] = held
    return found


def is_constant(value: torch.Tensor) -> bool:
    """Return True if all elements of a tensor are equal."""
    return bool((value == value.reshape(-1)[0]).all())


def _is_mask(value: torch.Tensor) -> bool:
    low, high = value.min(), value.max()
    if bool(low == high) or not bool(((value == low) | (value == high)).all()):
        return False
    in_rows = (value != 0).reshape(value.shape[0], -1).sum(1)
    return value.dim() < 2 or not bool((in_rows == 1).all())


def _is_useful(value: torch.Tensor) -> bool:
    """Return True if a change of the tensor's values may matter: some are finite, none is NaN."""
    return bool(value.isfinite().any()) and not bool(value.isnan().any())


def has_variances(names: Iterable[str]) -> bool:
    """Return True if a running variance is among the names."""
    return any(name.endswith(_VARIANCE) for name in names)


def vary(
    state: Mapping[str, torch.Tensor],
    seed: int,
    smallest_variance: float = 1.0,
    strengths: Mapping[str, float] | None = None,
) -> dict[str, torch.Tensor]:
    """Return random values, by name, that replace the given ones.

    They differ from a value by at most half of it, and from a zero by at most half of the root of
    the tensor's mean square, or by 0.5 if all of it is zero. Rows that rise or fall keep doing so.
    Infinite values stay. The results are contiguous CPU tensors of the given types.

    Args:
        state: Values by name, from `fixed_state`.
        seed: Decides the values.
        smallest_variance: Where below 1, about a quarter of a running variance's elements, one at
            least, are this factor to 0.01 times as large: a layer without its eps then gives other
            values.
        strengths: Largest changes by name, if other than a half.
    """
    source = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, value in state.items():
        unit = torch.rand(value.shape, generator=source).sub_(0.5)
        unit.mul_(2 * (strengths or {}).get(name, STRENGTHS[0]))
        moved = _moved(value.detach().to("cpu", torch.float64), unit.double())
        if smallest_variance < 1 and name.endswith(_VARIANCE):
            chosen = torch.rand(value.shape, generator=source) < _SMALL_SHARE
            chosen.view(-1)[0] |= not chosen.any()
            share = torch.rand(value.shape, generator=source)
            shrunk = _LARGEST * (smallest_variance / _LARGEST) ** share
            moved = torch.where(chosen, moved * shrunk, moved)
        drawn[name] = moved.to(value.dtype).contiguous()
    return drawn


def renewed_together(names: Collection[str], renewal: int, seed: int) -> set[str]:
    """Return the names of tensors that change in a renewal.

    Others stay, since a kernel may look at one tensor to see whether any changed. Renewals come in
    pairs: in each, every tensor changes in one renewal and stays in the other. Of `n` tensors, any
    two are told apart by one of the first ``ceil(log2(n))`` pairs.

    Args:
        names: Names of all tensors.
        renewal: Number of the renewal, from 1.
        seed: Decides the order of names and renewals.
    """
    order = sorted(names)
    if len(order) <= 1:
        return set(order)
    secret = random.Random(seed)
    secret.shuffle(order)
    pair, half = divmod(renewal - 1, 2)
    bit = pair % (len(order) - 1).bit_length()
    first = secret.getrandbits(1)
    return {name for place, name in enumerate(order) if (place >> bit) & 1 == half ^ first}


def partly(
    old: Mapping[str, torch.Tensor],
    new: Mapping[str, torch.Tensor],
    seed: int,
    names: Collection[str],
) -> dict[str, torch.Tensor]:
    """Return old values of which few are replaced by new ones, at least one in each named tensor.

    They are few because a kernel that keeps what it made of parameters may look at a sample of
    them, and make it anew if that changed. Of matrices some columns of some rows are replaced. In a
    vector that rises or falls, an element moves between its neighbours.

    Args:
        old: Values by name.
        new: Values to take some of, by name.
        seed: Decides which are replaced.
        names: Names of the tensors that change.
    """
    source = torch.Generator().manual_seed(seed)
    mixed = dict(old)
    for name in sorted(names):
        value = new[name]
        if value.dim() == 1 and _direction(value) is not None:
            mixed[name] = _moved_between(old[name], source)
            continue
        if value.dim() > 1:
            rows = _some((*value.shape[:-1], 1), _FEW_ROWS, source)
            chosen = rows & _some(value.shape[-1:], _FEW_ROWS, source)
        else:
            chosen = _some(value.shape, _FEW_OF, source)
        mixed[name] = torch.where(chosen, value, old[name]).contiguous()
    return mixed


def _some(shape: Sequence[int], of: int, source: torch.Generator) -> torch.Tensor:
    """Return a mask that is true for about one element in so many, at least one."""
    chosen = torch.rand(tuple(shape), generator=source) < 1 / of
    chosen.view(-1)[int(torch.randint(chosen.numel(), (), generator=source))] = True
    return chosen


def _moved_between(value: torch.Tensor, source: torch.Generator) -> torch.Tensor:
    """Return a vector that rises or falls with some elements moved between their neighbours."""
    parity, first = (int(torch.randint(2, (), generator=source)) for _ in range(2))
    places = torch.arange(parity if len(value) > 1 else 0, len(value), 2)
    chosen = torch.rand(len(places), generator=source) < 1 / _FEW_IN_ORDER
    chosen[int(torch.randint(len(places), (), generator=source))] = True
    wide = value.double()
    low, high = wide[(places - 1).clamp(min=0)], wide[(places + 1).clamp(max=len(value) - 1)]
    share = 0.1 + 0.2 * torch.rand(len(places), generator=source).double()
    between = torch.lerp(low, high, 1 - share if first else share)
    moved = value.clone()
    moved[places[chosen]] = between[chosen].to(value.dtype)
    return moved


def edges(
    state: Mapping[str, torch.Tensor], seed: int, strengths: Mapping[str, float]
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return two sets of values as far away as `vary` may draw, on opposite sides."""
    source = torch.Generator().manual_seed(seed)
    found: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] = {}, {}
    for name, value in state.items():
        held = value.detach().to("cpu", torch.float64)
        unit = torch.randint(2, value.shape, generator=source).mul(2).sub(1) * strengths[name]
        for values, signed in zip(found, (unit, -unit), strict=True):
            values[name] = _moved(held, signed).to(value.dtype).contiguous()
    return found


def _moved(value: torch.Tensor, unit: torch.Tensor) -> torch.Tensor:
    """Return values moved by random shares of themselves."""
    finite = value[value.isfinite()]
    size = float(finite.square().mean().sqrt()) or 1.0
    moved = torch.where(value == 0, unit * size, value * (1 + unit))
    falls = _direction(value)
    # A table that is searched must stay sorted.
    return moved if falls is None else moved.sort(descending=falls).values


def _direction(value: torch.Tensor) -> bool | None:
    """Return False if all rows rise, True if all fall, else None."""
    if value.dim() and value.shape[-1] > 1:
        steps = value.diff()
        for falls, grows in ((False, steps > 0), (True, steps < 0)):
            if bool(grows.all()):
                return falls
    return None


def put_state(model: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Copy values into a model's state, by name and in place."""
    if not values:
        return
    state = model.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, value in values.items():
            state[name].copy_(value)
