"""Discounted returns: what each turn of an episode is credited with.

Two variants, both read from the turn on (Kevin-32B, arXiv 2507.11948, compares them):

- ``sum``: ``R_t = s_t + gamma * R_{t+1}``;
- ``max``: ``R_t = max(s_t, gamma * R_{t+1})``, where a later return counts only if it is above 0:
  discounting moves a penalty towards 0, and waiting must not make it look better.

Contract: at ``gamma = 0`` both are the scores themselves. With a horizon the last score is taken
to repeat until that many turns are played; that is how an episode that ended solved is credited,
so that solving now never returns less than solving later.

It knows nothing of episodes or rewards, only numbers. Part of the nouns; import these names from
`kernelgym.types`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from kernelgym.errors import UnknownName

GAMMA = 0.4
"""Default discount factor over the turns of an episode (Kevin-32B, arXiv 2507.11948)."""

ReturnVariant = Literal["sum", "max"]
"""Name of a rule by which the scores from a turn on become its return."""

RETURN_VARIANTS: tuple[ReturnVariant, ...] = get_args(ReturnVariant)
"""Every variant's name."""


def return_variant(which: str) -> ReturnVariant:
    """Return `which`, if it is a variant's name.

    Raises:
        UnknownName: If it is not.
    """
    for known in RETURN_VARIANTS:
        if which == known:
            return known
    raise UnknownName("variant of returns", which, RETURN_VARIANTS)


def discounted_returns(
    scores: Sequence[float],
    gamma: float = GAMMA,
    *,
    horizon: int | None = None,
    variant: ReturnVariant = "sum",
) -> tuple[float, ...]:
    """Return the discounted return from every turn on.

    Args:
        scores: One score per turn played.
        gamma: Discount factor in [0, 1].
        horizon: Number of turns of the episode; if given, the last score is taken to repeat until
            that many turns are played.
        variant: ``sum`` or ``max``; see the module.

    Raises:
        ValueError: If `gamma` lies outside [0, 1], or there is no such variant.
    """
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must lie in [0, 1], got {gamma}")
    best = return_variant(variant) == "max"
    tail = 0.0
    returns: list[float] = []
    for score in reversed(_played_out(scores, horizon)):
        later = gamma * tail
        if best:
            tail = max(score, later) if later > 0.0 else score
        else:
            tail = score + later
        returns.append(tail)
    returns.reverse()
    return tuple(returns[: len(scores)])


def _played_out(scores: Sequence[float], horizon: int | None) -> list[float]:
    played = list(scores)
    if horizon is not None and played:
        played += played[-1:] * (horizon - len(played))
    return played
