"""Which kinds of inputs are tried on a problem, strongest variant first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelgym.judge.inputs.kinds import (
    BALANCED,
    ENDS,
    FOR_RANKS,
    NONFINITE,
    SALTED,
    TIED,
    alone,
    variants,
)
from kernelgym.judge.reference.operator_class import OperatorWatch
from kernelgym.rulesets import Ruleset

MOST_SAMPLERS = 3
"""Sampler calls whose values are turned alone: each may take many runs of the reference."""


def groups_of(
    ruleset: Ruleset, watched: OperatorWatch | None, gives_integers: bool
) -> list[tuple[str, ...]]:
    """Return groups of variants; the first one of a group that suits the problem is used."""
    groups: list[tuple[str, ...]] = []
    operation = "" if watched is None else watched.operation
    for kind in ruleset.distributions:
        if kind in FOR_RANKS and not (watched is not None and watched.ranks):
            continue
        # Of equal values, torch may sort any first; only `argmax` and its like take the first, and
        # stable sorts.
        if kind == TIED and watched is not None and watched.ties_differ and gives_integers:
            continue
        groups.append(variants(kind, operation))
    if SALTED not in ruleset.distributions:
        return groups
    groups.append((ENDS,))
    if watched is not None and watched.multiplies:
        groups.append(variants(BALANCED))
    if watched is not None and watched.asks_finite:
        groups.append(NONFINITE)
    return groups


def of_samplers(groups: Sequence[tuple[str, ...]], samplers: int) -> Iterator[tuple[str, ...]]:
    """Yield groups of variants that turn the values of one sampler call alone.

    Each group begins with another call than the one before, so that all get some kind. None if
    there is one sampler call only.
    """
    if samplers < 2:
        return
    for place, group in enumerate(each for each in groups if ENDS not in each):
        calls = [1 + (place + step) % samplers for step in range(samplers)]
        yield tuple(alone(variant, call) for call in calls for variant in group)
