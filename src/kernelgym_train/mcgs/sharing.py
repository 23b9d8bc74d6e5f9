"""Shares of one budget of evaluations for several searches, by weight and expected gain.

Contract: pure. `first_shares` splits half of the budget among all searches. `next_shares` splits
half of the rest, or all of it once little is left, among the searches that can go on. Shares add up
to what is split, and equal arguments give equal shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelgym import UsageError

_LEAST = 2  # evaluations of each search
_HOPE = 0.02  # ln of a speedup that is assumed to be possible where no gain was seen


def first_shares(budget: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Return the evaluations of the first round by search: shares of half the budget by weight.

    Args:
        budget: Number of evaluations of all searches.
        weights: Weights above 0, by search.

    Raises:
        UsageError: If the budget gives a search less than two evaluations.
    """
    if budget < _LEAST * len(weights):
        raise UsageError(
            f"budget_builds={budget} is too little for {len(weights)} kernels; give at least "
            f"{_LEAST * len(weights)}: {_LEAST} for each"
        )
    left = max(budget // 2, _LEAST * len(weights)) - _LEAST * len(weights)
    return {name: _LEAST + more for name, more in _split(left, weights).items()}


def next_shares(
    left: int, weights: Mapping[str, float], gains: Mapping[str, float]
) -> dict[str, int]:
    """Return the evaluations of the next round, by search.

    Args:
        left: Number of evaluations that are left for all rounds.
        weights: Weights above 0 by search, without the searches that cannot go on.
        gains: Expected gain of an evaluation by search; see `expected_gain`.
    """
    if not weights:
        return {}
    round_ = left if left <= 2 * _LEAST * len(weights) else left // 2
    return _split(round_, {name: weight * gains[name] for name, weight in weights.items()})


def expected_gain(leads: Sequence[tuple[int, float]], evaluations: int) -> float:
    """Return the expected gain of one evaluation, in ln(speedup).

    It is the mean gain of the later half of the evaluations. Where that half gained nothing, a gain
    of 2 % is assumed to be possible.

    Args:
        leads: (number of evaluations, best value) at each improvement, beginning with (0, 0).
        evaluations: Number of evaluations so far.
    """
    half = evaluations // 2
    before = max((value for number, value in leads if number <= half), default=0.0)
    now = max((value for _, value in leads), default=0.0)
    return (now - before + _HOPE) / (evaluations - half + 1)


def _split(whole: int, parts: Mapping[str, float]) -> dict[str, int]:
    """Split a whole number in proportion to parts, by the method of largest remainders."""
    total = math.fsum(parts.values())
    exact = {name: whole * part / total for name, part in parts.items()}
    shares = {name: math.floor(share) for name, share in exact.items()}
    by_remainder = sorted(parts, key=lambda name: (shares[name] - exact[name], name))
    for name in by_remainder[: whole - sum(shares.values())]:
        shares[name] += 1
    return shares
