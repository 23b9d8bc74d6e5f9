"""Numbers that compare sets of verdicts: fast_p, pass@k, geometric mean speedup.

Contract: plain functions of verdicts or counts; nothing is rounded. `unavailable` verdicts say
nothing about kernels and are left out of every rate; a set with no valid verdict has no rate, and
asking for one is an error rather than a number made up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kernelgym.errors import UsageError
from kernelgym.types import Verdict

__all__ = ["fast_p", "geometric_mean_speedup", "pass_at_k"]


def fast_p(verdicts: Iterable[Verdict], p: float) -> float:
    """Return the share of problems solved correctly and more than `p` times as fast.

    ``fast_p = (1 / N) * sum_i [correct_i and speedup_i > p]`` (KernelBench, arXiv 2502.10517),
    with a strict inequality. ``fast_0`` is the rate of correct kernels, timed or not; for any
    other `p` an untimed kernel does not count.

    Args:
        verdicts: One verdict per problem.
        p: Speedup to exceed, at least 0.

    Raises:
        UsageError: If `p` is negative or no verdict is valid.
    """
    if not p >= 0.0:
        raise UsageError(f"fast_p needs p >= 0, got {p}")
    valid = [verdict for verdict in verdicts if verdict.valid]
    if not valid:
        raise UsageError("fast_p needs at least one valid verdict")
    hits = sum(verdict.correct and (p == 0.0 or verdict.speedup > p) for verdict in valid)
    return hits / len(valid)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of `k` samples is correct, without bias.

    ``pass@k = 1 - C(n - c, k) / C(n, k)`` (Chen et al., arXiv 2107.03374), computed as a product
    so that large `n` neither overflows nor loses digits.

    Args:
        n: Samples drawn.
        c: Samples that were correct.
        k: Samples one may try.

    Raises:
        UsageError: Unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise UsageError(f"pass_at_k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def geometric_mean_speedup(verdicts: Iterable[Verdict]) -> float:
    """Return ``exp(mean(log(speedup)))`` over the correct and timed verdicts.

    The geometric mean is the one that does not depend on which side is called the baseline
    (Fleming and Wallace, CACM 29(3), 1986).

    Raises:
        UsageError: If no verdict is timed.
    """
    logs = [math.log(verdict.timing.speedup) for verdict in verdicts if verdict.timing is not None]
    if not logs:
        raise UsageError("geometric_mean_speedup needs at least one correct and timed verdict")
    return math.exp(math.fsum(logs) / len(logs))
