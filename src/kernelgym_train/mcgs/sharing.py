"""How searches share one budget: by weight and expected gain.

Contract: pure. `first_shares` gives each search its part of half the budget; `next_shares` splits
what is left in rounds, each of which is half of it until little is left, among the searches that
can go on. What is given adds up to what there is, and equal arguments give equal shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelgym import UsageError

__all__ = ["expected_gain", "first_shares", "next_shares"]

_LEAST = 2  # evaluations
_HOPE = 0.02  # a gain, in ln of the speedup, that is thought possible where none was seen


def first_shares(budget: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Return each search's first evaluations: its part of half the budget.

    Args:
        budget: Evaluations of all searches.
        weights: By search; above 0.

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
    """Return the evaluations of the next round.

    Args:
        left: Evaluations that are left for all rounds.
        weights: By search; above 0. Searches that cannot go on are left out.
        gains: What an evaluation of each is expected to gain; see `expected_gain`.
    """
    if not weights:
        return {}
    round_ = left if left <= 2 * _LEAST * len(weights) else left // 2
    return _split(round_, {name: weight * gains[name] for name, weight in weights.items()})


def expected_gain(leads: Sequence[tuple[int, float]], evaluations: int) -> float:
    """Return the expected gain of one evaluation, in ln(speedup).

    The gain of the later half of the evaluations goes on, and a gain of 2 % is thought possible
    where there was none.

    Args:
        leads: (evaluations, best value) when a better value came to be, the first of them (0, 0).
        evaluations: How many there were.
    """
    half = evaluations // 2
    before = max((value for number, value in leads if number <= half), default=0.0)
    now = max((value for _, value in leads), default=0.0)
    return (now - before + _HOPE) / (evaluations - half + 1)


def _split(whole: int, parts: Mapping[str, float]) -> dict[str, int]:
    """Split a number by parts, by largest remainders."""
    total = math.fsum(parts.values())
    exact = {name: whole * part / total for name, part in parts.items()}
    shares = {name: math.floor(share) for name, share in exact.items()}
    by_remainder = sorted(parts, key=lambda name: (shares[name] - exact[name], name))
    for name in by_remainder[: whole - sum(shares.values())]:
        shares[name] += 1
    return shares
