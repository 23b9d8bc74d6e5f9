"""Rates over many answers to few problems, with intervals that know so.

Contract: pure. Answers to one problem are alike, so what is drawn anew for an interval is problems
with all of their answers (a cluster bootstrap), and a rate over a part of the answers (second turns
after a failure) is the ratio of two sums in every draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Rate", "cluster_rate"]

_DRAWS = 2000
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float
    n: float
    """What the share is of: answers, or problems."""

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.0f} to {100 * self.high:.0f})"


def cluster_rate(clusters: Sequence[tuple[float, float]], *, seed: int = 0) -> Rate | None:
    """Return the rate over all clusters, with the interval that drawing clusters anew gives it.

    Args:
        clusters: Of each problem, how many of its answers have the property (or how many are
            expected to), and how many there are; a problem may have none.
        seed: Of the draws.

    Returns:
        The rate, or None if there is no answer at all.
    """
    counts = np.asarray([pair for pair in clusters if pair[1] > 0], dtype=np.float64)
    if not len(counts):
        return None
    drawn = np.random.default_rng(seed).integers(len(counts), size=(_DRAWS, len(counts)))
    sums = counts[drawn].sum(axis=1)
    edge = 100 * (1 - _LEVEL) / 2
    low, high = np.percentile(sums[:, 0] / sums[:, 1], [edge, 100 - edge])
    having, of = counts.sum(axis=0)
    return Rate(float(having / of), float(low), float(high), float(of))
