"""95 % intervals of rates and other statistics, over problems; none has width 0.

Contract: pure; the same data gives the same interval. Answers to one problem are alike, so an
interval is a statement about other problems: a problem with all of its answers is one cluster.

- A rate has Wilson's interval at the clusters' effective number of answers: the answers over the
  design effect, which is estimated between problems. Where few problems have both outcomes that
  estimate is worthless, so it is drawn towards the other extreme, that all answers to a problem are
  equal. Student's quantile takes the place of the normal one for few problems, as Korn and Graubard
  do (Survey Methodology 24, 1998).
- Any other statistic has the accelerated bootstrap's interval (Efron, JASA 82, 1987).

A plain bootstrap of problems covers 75 to 92 % where successes are rare, and gives width 0 where
there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from kernelgym.errors import UsageError

_DRAWS = 2000
_AT_ONCE = 200  # draws held in memory together
_LEVEL = 0.95
_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf(0.5 + _LEVEL / 2)
_DOUBT = 2.0
"""Number of problems with both outcomes at which the estimated design effect has weight 1/2."""
_T_OF_FEW = {1: 12.7062, 2: 4.3027}
"""Student's 97.5 % quantiles at few degrees of freedom, where the series in `student` is too
inexact."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RateEstimate:
    """A share with its 95 % interval."""

    value: float
    low: float
    high: float
    n: float
    """Number of answers or problems that the share is taken of."""

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.0f} to {100 * self.high:.0f})"


def wilson(share: float, n: float, z: float = _Z) -> tuple[float, float]:
    """Return Wilson's interval of a share.

    Wilson, JASA 22 (1927). It lies within [0, 1] and is never of width 0.

    Args:
        share: The observed share, in [0, 1].
        n: Independent answers it was observed in; need not be whole.
        z: Quantile of the standard normal distribution.

    Raises:
        UsageError: If the share or the number is out of range.
    """
    if not 0.0 <= share <= 1.0 or not n > 0.0:
        raise UsageError(f"an interval needs a share in [0, 1] and answers, got {share} of {n}")
    square = z * z / n
    middle = (share + square / 2.0) / (1.0 + square)
    half = z / (1.0 + square) * math.sqrt(share * (1.0 - share) / n + square / (4.0 * n))
    # At the ends the two terms cancel but for rounding.
    low = 0.0 if share == 0.0 else max(0.0, middle - half)
    high = 1.0 if share == 1.0 else min(1.0, middle + half)
    return min(low, share), max(high, share)


def student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's distribution.

    By the expansion in Abramowitz and Stegun, 26.7.5; the error is below 0.2 %.

    Args:
        freedom: Degrees of freedom, 1 or more.
    """
    if freedom in _T_OF_FEW:
        return _T_OF_FEW[freedom]
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))


def cluster_rate(clusters: Sequence[tuple[float, float]]) -> RateEstimate | None:
    """Return the rate over all clusters, with an interval over problems.

    Args:
        clusters: Pairs, one for each problem: the number of its answers that have the property
            (observed or expected), and the number of its answers, which may be 0.

    Returns:
        The rate, or None if there is no answer at all.
    """
    counts = [(float(having), float(of)) for having, of in clusters if of > 0]
    if not counts:
        return None
    having = math.fsum(pair[0] for pair in counts)
    of = math.fsum(pair[1] for pair in counts)
    share = min(1.0, max(0.0, having / of))
    return RateEstimate(share, *wilson(share, _effective(counts, share, of)), of)


def mean_rate(values: Sequence[float], worth: float = 1.0) -> RateEstimate | None:
    """Return the mean of one share per problem, each problem counting once.

    Args:
        values: A share in [0, 1] of each problem, such as its pass@k.
        worth: Number of independent answers that one share stands for; n / k for pass@k.

    Returns:
        The rate, whose `n` is the number of problems; None if there are none.
    """
    found = cluster_rate([(value * worth, worth) for value in values])
    if found is None:
        return None
    return RateEstimate(found.value, found.low, found.high, float(len(values)))


def _effective(counts: Sequence[tuple[float, float]], share: float, of: float) -> float:
    """Return the effective number of independent answers."""
    problems = len(counts)
    equal = max(1.0, of / problems)  # the design effect if all answers to a problem are equal
    if problems == 1:
        return of / equal
    residuals = math.fsum((having - share * size) ** 2 for having, size in counts)
    variance = problems / (problems - 1) * residuals / of**2
    independent = share * (1.0 - share) / of  # the variance without any clustering
    seen = variance / independent if independent > 0.0 else equal
    both = min(
        math.fsum(min(1.0, having) for having, _ in counts),
        math.fsum(min(1.0, size - having) for having, size in counts),
    )
    trust = max(0.0, both) / (max(0.0, both) + _DOUBT)
    effect = max(1.0, trust * seen + (1.0 - trust) * equal)
    return of / effect * (_Z / student(problems - 1)) ** 2


def bootstrap_interval(
    clusters: Sequence[Sequence[float]] | Array,
    statistic: Callable[[Array], Array],
    *,
    least: float = 0.0,
    draws: int = _DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the accelerated bootstrap's interval of a statistic, resampling problems.

    Args:
        clusters: A row of numbers of each problem.
        statistic: Function from an array of rows, with any number of dimensions before the last
            two, to the statistic of the rows along the second last dimension.
        least: Smallest distance of each end from the statistic: the measurements' own noise.
        draws: Number of bootstrap samples.
        seed: Seed of the random number generator.

    Raises:
        UsageError: If there is no row.
    """
    rows = np.asarray(clusters, dtype=np.float64)
    if not len(rows):
        raise UsageError("an interval needs at least one value")
    whole = float(statistic(rows))
    low = high = whole
    if len(rows) > 1 and not (rows == rows[0]).all():
        chance = np.random.default_rng(seed)
        sizes = [min(_AT_ONCE, draws - begun) for begun in range(0, draws, _AT_ONCE)]
        drawn = np.concatenate(
            [statistic(rows[chance.integers(len(rows), size=(n, len(rows)))]) for n in sizes]
        )
        drawn = np.sort(drawn[np.isfinite(drawn)])
        places = range(len(rows))
        kept = np.array([float(statistic(np.delete(rows, place, axis=0))) for place in places])
        low, high = _accelerated(drawn, kept[np.isfinite(kept)], whole)
    return min(low, whole - least), max(high, whole + least)


def _accelerated(drawn: Array, left_out: Array, whole: float) -> tuple[float, float]:
    """Return both ends of the accelerated bootstrap interval, from sorted draws and jackknife."""
    if not len(drawn):
        return whole, whole
    below = (np.searchsorted(drawn, whole, "left") + np.searchsorted(drawn, whole, "right")) / 2
    share = min(max(float(below) / len(drawn), 0.5 / len(drawn)), 1.0 - 0.5 / len(drawn))
    bias = _NORMAL.inv_cdf(share)
    off = float(left_out.mean()) - left_out if len(left_out) else np.zeros(1)
    spread = float((off**2).sum()) ** 1.5
    acceleration = float((off**3).sum()) / (6.0 * spread) if spread > 0.0 else 0.0
    ends = []
    for z in (-_Z, _Z):
        moved = bias + z
        scale = 1.0 - acceleration * moved
        # Beyond the pole the transformation turns back; the extreme draw is what is left.
        rank = _NORMAL.cdf(bias + moved / scale) if scale > 0.0 else float(z > 0)
        ends.append(float(np.quantile(drawn, min(max(rank, 0.0), 1.0))))
    return min(ends), max(ends)
