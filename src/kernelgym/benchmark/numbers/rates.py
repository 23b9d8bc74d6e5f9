"""Rates of correct kernels and of correct and fast kernels: pass@k and fast_p.

Contract: pure. Each rate is taken over all judged answers, and its interval is a statement about
other problems of the kind (`kernelgym.benchmark.numbers.intervals`). Each function takes the first
answers, or with `within` the best turns of whole episodes (`kernelgym.benchmark.numbers.outcomes`).

``pass@k`` is the mean over problems of Chen et al.'s unbiased estimate (arXiv 2107.03374); problems
with fewer than k judged answers are left out of numerator and denominator alike. ``fast_p`` is
KernelBench's (arXiv 2502.10517): the share that is correct and more than p times as fast. *Certain*
fast_p compares the lower end of the speedup's interval with p.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelgym.benchmark.numbers.intervals import RateEstimate, cluster_rate, mean_rate
from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, by_problem
from kernelgym.errors import UsageError
from kernelgym.types import Verdict


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """fast_p and certain fast_p at one p."""

    p: float
    point: float
    certain: float


def exceeds(verdict: Verdict, p: float, *, certain: bool = False) -> bool:
    """Return True if a kernel is correct and its speedup exceeds `p`.

    At p = 0 every correct kernel counts, timed or not; at a larger p only timed ones do.

    Args:
        verdict: The verdict.
        p: Speedup to exceed.
        certain: Compare the lower end of the speedup's 95 % interval. A time that its own verdict
            distrusts is never certain.
    """
    if not verdict.correct or (certain and p > 0.0 and verdict.distrusted):
        return False
    speed = verdict.speedup_low if certain else verdict.speedup
    return p == 0.0 or speed > p


def fast_p(verdicts: Iterable[Verdict], p: float, *, certain: bool = False) -> float:
    """Return the share of valid verdicts that are correct and exceed the speedup `p`.

    Args:
        verdicts: One verdict per problem; `unavailable` ones are left out.
        p: Speedup to exceed, at least 0. ``fast_0`` is the share of correct kernels, timed or not.
        certain: Compare the lower end of the speedup's 95 % interval with `p`.

    Raises:
        UsageError: If `p` is negative or no verdict is valid.
    """
    _check_p(p)
    valid = [verdict for verdict in verdicts if verdict.valid]
    if not valid:
        raise UsageError("fast_p needs at least one valid verdict")
    return sum(exceeds(verdict, p, certain=certain) for verdict in valid) / len(valid)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of the chance that one of `k` samples is correct.

    ``pass@k = 1 - C(n - c, k) / C(n, k)`` (Chen et al., arXiv 2107.03374), computed as a product
    so that large `n` neither overflows nor loses digits.

    Args:
        n: Number of samples drawn.
        c: Number of samples that are correct.
        k: Number of samples that may be tried.

    Raises:
        UsageError: Unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise UsageError(f"pass_at_k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def correct_rate(
    outcomes: Iterable[EpisodeOutcome], *, within: bool = False
) -> RateEstimate | None:
    """Return the share of correct kernels; None if nothing was judged."""
    return fast_rate(outcomes, 0.0, within=within)


def fast_rate(
    outcomes: Iterable[EpisodeOutcome], p: float, *, within: bool = False, certain: bool = False
) -> RateEstimate | None:
    """Return fast_p; None if nothing was judged.

    Args:
        outcomes: The episodes.
        p: Speedup to exceed, at least 0.
        within: Take the best turn of whole episodes, not the first answer.
        certain: Compare the lower end of the speedup's interval.

    Raises:
        UsageError: If `p` is negative.
    """
    _check_p(p)
    clusters = []
    for group in by_problem(outcomes).values():
        judged = _judged(group, within)
        clusters.append((sum(exceeds(each, p, certain=certain) for each in judged), len(judged)))
    return cluster_rate(clusters)


def fast_curve(
    outcomes: Iterable[EpisodeOutcome], places: Sequence[float], *, within: bool = False
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
    return [CurvePoint(p, fast_p(judged, p), fast_p(judged, p, certain=True)) for p in places]


def pass_rate(
    outcomes: Iterable[EpisodeOutcome], k: int, *, within: bool = False
) -> RateEstimate | None:
    """Return pass@k; None if no problem has k judged answers.

    Args:
        outcomes: The episodes.
        k: Number of answers (or episodes) that may be tried.
        within: Count an episode as passed if any of its turns is correct.

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


def _check_p(p: float) -> None:
    if not p >= 0.0:
        raise UsageError(f"fast_p needs p >= 0, got {p}")


def _judged(outcomes: Iterable[EpisodeOutcome], within: bool) -> list[Verdict]:
    found = (outcome.verdict(within) for outcome in outcomes)
    return [verdict for verdict in found if verdict is not None and verdict.valid]
