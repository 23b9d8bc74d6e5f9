"""Finds how far state that is not drawn may change, so that one tensor does not shield others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from kernelgym.judge.reference.fixed_state import STRENGTHS, has_variances, is_constant

BearsState = Callable[[Mapping[str, torch.Tensor], Mapping[str, float], float, bool], bool]
"""Tries to change state, with the largest changes by name and the smallest variances. With care,
the values farthest away are tried, too. What is borne stays changed."""

_MOST_ALONE = 16  # tensors tried one by one, each up to three times
_MOST_TRIES = 32  # of groups of constants: each takes up to two runs of the reference and its twin
_SMALLEST_VARIANCES = (1e-4, 1e-3)
"""Factors of running variances that are tried, until the reference is well conditioned."""


def most_borne(
    state: Mapping[str, torch.Tensor], bears_state: BearsState, small_variances: bool
) -> tuple[dict[str, float], float]:
    """Return the largest borne change of every tensor of the state, and of running variances.

    Constants are tried together, then in ever smaller groups; then all other state, and if that is
    too much, each tensor of it.
    """
    constants = {name: value for name, value in state.items() if is_constant(value)}
    shaped = {name: value for name, value in state.items() if name not in constants}
    varied: dict[str, float] = {}
    smallest = _SMALLEST_VARIANCES if small_variances and has_variances(constants) else ()
    strengths = dict.fromkeys(constants, STRENGTHS[0])
    borne = (each for each in (*smallest, 1.0) if bears_state(constants, strengths, each, False))
    smallest_variance = next(borne, 0.0) if constants else 1.0
    if smallest_variance:
        varied.update(strengths)
    else:
        varied, smallest_variance = _constants_apart(constants, bears_state, smallest)
    alone = [{name: value} for name, value in shaped.items()] if len(shaped) > 1 else []
    for group in (shaped, *alone[:_MOST_ALONE]):
        if group and not varied.keys() & group.keys():
            varied.update(_strongest(group, STRENGTHS, bears_state))
    return varied, smallest_variance


def _constants_apart(
    constants: Mapping[str, torch.Tensor], bears_state: BearsState, smallest: Iterable[float]
) -> tuple[dict[str, float], float]:
    """Return borne changes of constants that cannot all change, and the smallest variances.

    Halves of what is not borne are tried, then halves of these. Smaller changes are for single
    tensors. What is left after many tries stays as it is.
    """
    varied: dict[str, float] = {}
    groups = _halves(constants)
    tries = 0
    while groups and tries < _MOST_TRIES:
        group = groups.pop(0)
        strengths = STRENGTHS if len(group) == 1 else STRENGTHS[:1]
        tries += len(strengths)
        found = _strongest(group, strengths, bears_state)
        varied.update(found)
        if not found and len(group) > 1:
            groups += _halves(group)
    variances = {name: constants[name] for name in varied if has_variances([name])}
    as_they_are = dict.fromkeys(variances, 0.0)
    shrunk = (each for each in smallest if bears_state(variances, as_they_are, each, True))
    return varied, next(shrunk, 1.0) if variances else 1.0


def _halves(group: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    items = list(group.items())
    middle = len(items) // 2
    return [dict(half) for half in (items[:middle], items[middle:]) if half]


def _strongest(
    group: Mapping[str, torch.Tensor], strengths: Iterable[float], bears_state: BearsState
) -> dict[str, float]:
    """Return the largest change that a group bears, by name; nothing if it bears none."""
    choices = (dict.fromkeys(group, strength) for strength in strengths)
    return next((each for each in choices if bears_state(group, each, 1.0, True)), {})
