"""Estimators: how the returns of one group become advantages.

A group is the trajectories of one problem in one step. Contract, for every estimator:

- adding the same number to all returns changes no advantage;
- a return that is compared with no other return, or only with equal ones (within `FLAT`), gets
  advantage 0;
- sums are exact before they are rounded, so the order of trajectories changes no digit;
- an estimator that leaves a return out of its own baseline does so exactly.

docs/credit.md tells the bias of each. All trajectories that are given take part;
`kernelgym_train.credit.credit` leaves out those that do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import Literal

from kernelgym.errors import UnknownName

STD_EPSILON = 1e-4
"""Number that is added to a standard deviation before dividing by it, as in TRL."""

FLAT = 1e-9
"""Largest difference of returns that count as equal; it allows for rounding."""

Returns = Sequence[Sequence[float]]
"""Returns of one group: for each trajectory, one return for each of its turns."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """Estimator of advantages: the returns that are compared, and their baseline."""

    name: str
    scope: Literal["group", "turn", "trajectory"]
    """Returns that are compared with each other. ``group``: those of all turns of all trajectories.
    ``turn``: those of the same turn index. ``trajectory``: those of the first turns, whose
    advantage all later turns of the trajectory get as well."""
    against: Literal["others", "mean", "mean_and_deviation"]
    """Baseline of a return: the mean of the others, the mean of all, or the mean of all with the
    difference divided by the standard deviation (of a sample: n - 1)."""


ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {
        estimator.name: estimator
        for estimator in (
            Estimator("trloo", "turn", "others"),
            Estimator("turn_group", "turn", "mean_and_deviation"),
            Estimator("kevin", "group", "mean_and_deviation"),
            Estimator("rloo", "trajectory", "others"),
            Estimator("dr_grpo", "trajectory", "mean"),
            Estimator("grpo", "trajectory", "mean_and_deviation"),
        )
    }
)
"""Estimators by name. Per turn index: leave-one-out (Dr. Kernel, arXiv 2602.05885), mean and
deviation. Over all turns: mean and deviation (Kevin-32B, arXiv 2507.11948). Over trajectories:
leave-one-out (arXiv 2402.14740), mean (Dr. GRPO, arXiv 2503.20783), mean and deviation (GRPO, arXiv
2402.03300)."""


def find_estimator(name: str) -> Estimator:
    """Return the estimator of that name.

    Raises:
        UnknownName: If there is none.
    """
    try:
        return ESTIMATORS[name]
    except (KeyError, TypeError):
        raise UnknownName("estimator", name, ESTIMATORS) from None


def advantages(estimator: str, returns: Returns) -> tuple[tuple[float, ...], ...]:
    """Return one group's advantages, in the shape of its returns.

    Args:
        estimator: A name from `ESTIMATORS`.
        returns: Per trajectory, one return per turn played; lengths may differ.

    Raises:
        UnknownName: If there is no such estimator.
        ValueError: If a return is not finite.
    """
    how = find_estimator(estimator)
    if not all(math.isfinite(value) for turns in returns for value in turns):
        raise ValueError(f"returns must be finite, got {returns}")
    found = [[0.0] * len(turns) for turns in returns]
    for block in _compared(how.scope, returns):
        values = [returns[row][turn] for row, turn in block]
        if _flat(values):
            continue
        for (row, turn), advantage in zip(block, _advantages(how, values), strict=True):
            found[row][turn] = advantage
    if how.scope == "trajectory":
        found = [turns[:1] * len(turns) for turns in found]
    return tuple(tuple(turns) for turns in found)


def has_signal(estimator: str, returns: Returns) -> bool:
    """Return True if the returns of a group differ, so that it gives training samples.

    They differ if they do at some turn index, or at the first one for an estimator that compares
    whole trajectories. Returns that differ from one turn index to another only, as those of
    identical trajectories do, are no signal, although ``kevin`` would make advantages of them.

    Args:
        estimator: A name from `ESTIMATORS`.
        returns: Returns of the group, as for `advantages`.

    Raises:
        UnknownName: If there is no such estimator.
    """
    scope = find_estimator(estimator).scope
    return any(
        not _flat([returns[row][turn] for row, turn in block])
        for block in _compared("trajectory" if scope == "trajectory" else "turn", returns)
    )


def _compared(scope: str, returns: Returns) -> Iterator[list[tuple[int, int]]]:
    """Yield each set of returns that are compared with each other, as (trajectory, turn) pairs."""
    if scope == "group":
        yield [(row, turn) for row, turns in enumerate(returns) for turn in range(len(turns))]
        return
    longest = max((len(turns) for turns in returns), default=0)
    for turn in range(min(1, longest) if scope == "trajectory" else longest):
        yield [(row, turn) for row, turns in enumerate(returns) if turn < len(turns)]


def _flat(values: Sequence[float]) -> bool:
    return len(values) < 2 or max(values) - min(values) <= FLAT


def _advantages(how: Estimator, values: Sequence[float]) -> list[float]:
    """Return the advantages of two or more returns that differ."""
    if how.against == "others":
        # Not by way of the sum of all: a value has no part in its own baseline, not even by
        # rounding.
        others = ((*values[:row], *values[row + 1 :]) for row in range(len(values)))
        return [value - fmean(rest) for value, rest in zip(values, others, strict=True)]
    centred = [value - fmean(values) for value in values]
    if how.against == "mean":
        return centred
    deviation = math.sqrt(math.fsum(value * value for value in centred) / (len(values) - 1))
    return [value / (deviation + STD_EPSILON) for value in centred]
