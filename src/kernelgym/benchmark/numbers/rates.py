"""How often kernels are right, or right and fast: pass@k and fast_p.

Contract: pure. Each rate is over problems: every problem counts by its answers, and an interval
says what other problems of the kind would give (`kernelgym.benchmark.numbers.intervals`). What was
not judged is in no rate. Each function takes the first answers, or with `within` the best turns of
whole episodes (`kernelgym.benchmark.numbers.outcomes`).

``pass@k`` is the mean over problems of Chen et al.'s unbiased estimate (arXiv 2107.03374); problems
with fewer than k judged answers are left out of numerator and denominator alike. ``fast_p`` is
KernelBench's (arXiv 2502.10517): the share that is correct and more than p times as fast. *Certain*
asks the same of the lower end of the speedup's interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelgym.benchmark.numbers.intervals import Rate, cluster_rate, mean_rate
from kernelgym.benchmark.numbers.outcomes import Outcome, by_problem
from kernelgym.benchmark.scoring import pass_at_k
from kernelgym.errors import UsageError
from kernelgym.types import Verdict

__all__ = ["CurvePoint", "correct_rate", "exceeds", "fast_curve", "fast_rate", "pass_rate"]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """fast_p at one p."""

    p: float
    point: float
    certain: float


def exceeds(verdict: Verdict, p: float, *, certain: bool = False) -> bool:
    """Return True if a kernel is correct and its speedup exceeds `p`.

    At p = 0 every correct kernel counts, timed or not; above it, an untimed one does not.

    Args:
        verdict: The verdict.
        p: Speedup to exceed.
        certain: Ask it of the lower end of the speedup's 95 % interval.
    """
    if not verdict.correct:
        return False
    speed = verdict.speedup_low if certain else verdict.speedup
    return p == 0.0 or speed > p


def correct_rate(outcomes: Iterable[Outcome], *, within: bool = False) -> Rate | None:
    """Return the share that is correct; None if nothing was judged."""
    return fast_rate(outcomes, 0.0, within=within)


def fast_rate(
    outcomes: Iterable[Outcome], p: float, *, within: bool = False, certain: bool = False
) -> Rate | None:
    """Return fast_p; None if nothing was judged.

    Args:
        outcomes: The episodes.
        p: Speedup to exceed, at least 0.
        within: Take the best turn of whole episodes, not the first answer.
        certain: Ask it of the lower end of the speedup's interval.

    Raises:
        UsageError: If `p` is negative.
    """
    if not p >= 0.0:
        raise UsageError(f"fast_p needs p >= 0, got {p}")
    clusters = []
    for group in by_problem(outcomes).values():
        judged = _judged(group, within)
        clusters.append((sum(exceeds(each, p, certain=certain) for each in judged), len(judged)))
    return cluster_rate(clusters)


def fast_curve(
    outcomes: Iterable[Outcome], places: Sequence[float], *, within: bool = False
) -> list[CurvePoint]:
    """Return fast_p at each p; empty if nothing was judged.

    Args:
        outcomes: The episodes.
        places: Values of p.
        within: Take the best turn of whole episodes, not the first answer.
    """
    judged = _judged(outcomes, within)
    if not judged:
        return []
    return [
        CurvePoint(
            p,
            sum(exceeds(each, p) for each in judged) / len(judged),
            sum(exceeds(each, p, certain=True) for each in judged) / len(judged),
        )
        for p in places
    ]


def pass_rate(outcomes: Iterable[Outcome], k: int, *, within: bool = False) -> Rate | None:
    """Return pass@k; None if no problem has k judged answers.

    Args:
        outcomes: The episodes.
        k: Answers (or episodes) that one may try.
        within: An episode passes if any turn of it is correct.

    Raises:
        UsageError: If `k` is below 1.
    """
    if k < 1:
        raise UsageError(f"pass@k needs k >= 1, got {k}")
    counts = []
    for group in by_problem(outcomes).values():
        judged = _judged(group, within)
        if len(judged) >= k:
            counts.append((len(judged), sum(each.correct for each in judged)))
    values = [pass_at_k(n, right, k) for n, right in counts]
    worth = math.fsum(n for n, _ in counts) / (k * len(counts)) if counts else 1.0
    return mean_rate(values, worth)


def _judged(outcomes: Iterable[Outcome], within: bool) -> list[Verdict]:
    found = (outcome.verdict(within) for outcome in outcomes)
    return [verdict for verdict in found if verdict is not None]
