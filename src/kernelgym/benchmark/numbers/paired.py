"""Two runs compared problem by problem: differences, intervals, a sign test.

Contract: pure. Means by problem are compared, so every problem that both runs have counts once.
The interval is an accelerated bootstrap over problems; wins and losses have the exact sign test,
which only assumes that problems are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernelgym.benchmark.numbers.intervals import Array, bootstrap_interval, wilson
from kernelgym.benchmark.numbers.outcomes import EpisodeOutcome, by_problem

_EQUAL = 1e-12  # differences of sums of the same numbers


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How a second run differs from a first one."""

    first: float
    """Mean over problems of the first run."""
    second: float
    difference: float
    """Mean over problems of the second run's number minus the first run's."""
    low: float
    high: float
    wins: tuple[str, ...]
    """Problems where the second run is better."""
    losses: tuple[str, ...]
    ties: int
    p: float
    """p-value of the exact two-sided sign test."""

    @property
    def problems(self) -> int:
        """Number of problems that were compared."""
        return len(self.wins) + len(self.losses) + self.ties


def sign_test(wins: int, losses: int) -> float:
    """Return the two-sided p-value of the exact sign test.

    Twice the chance that a fair coin gives at least as many of the rarer side, at most 1.
    """
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1))
    return min(1.0, tail / 2 ** (n - 1)) if n else 1.0


def paired(
    first: Mapping[str, float], second: Mapping[str, float], *, most: float = math.inf
) -> PairedDifference | None:
    """Compare one number per problem; None if no problem has both.

    Args:
        first: Numbers of the first run by problem; a larger number is better.
        second: Numbers of the second run by problem.
        most: Largest possible difference; 1 for rates.
    """
    common = [name for name in first if name in second]
    if not common:
        return None
    differences = [second[name] - first[name] for name in common]
    middle = math.fsum(differences) / len(common)
    if max(map(abs, differences)) <= _EQUAL:
        # No difference was seen: it is rarer than a share of problems of which none was seen.
        low, high = -wilson(0.0, len(common))[1], wilson(0.0, len(common))[1]
    elif max(differences) - min(differences) <= _EQUAL:
        reach = abs(middle) * wilson(0.0, len(common))[1]
        low, high = middle - reach, middle + reach
    else:
        low, high = bootstrap_interval([[value] for value in differences], _mean)
    return PairedDifference(
        math.fsum(first[name] for name in common) / len(common),
        math.fsum(second[name] for name in common) / len(common),
        middle,
        max(min(low, middle), -most),
        min(max(high, middle), most),
        tuple(n for n, value in zip(common, differences, strict=True) if value > _EQUAL),
        tuple(n for n, value in zip(common, differences, strict=True) if value < -_EQUAL),
        sum(abs(value) <= _EQUAL for value in differences),
        sign_test(
            sum(value > _EQUAL for value in differences),
            sum(value < -_EQUAL for value in differences),
        ),
    )


def paired_rates(
    first: Sequence[EpisodeOutcome], second: Sequence[EpisodeOutcome], *, within: bool = False
) -> PairedDifference | None:
    """Compare the share of correct answers of each problem."""

    def rate(group: Sequence[EpisodeOutcome]) -> float | None:
        judged = [found for each in group if (found := each.verdict(within)) is not None]
        return sum(each.correct for each in judged) / len(judged) if judged else None

    return paired(_of_each(first, rate), _of_each(second, rate), most=1.0)


def paired_speeds(
    first: Sequence[EpisodeOutcome], second: Sequence[EpisodeOutcome], *, within: bool = False
) -> PairedDifference | None:
    """Compare mean log speedups, over problems that both runs solved."""

    def speed(group: Sequence[EpisodeOutcome]) -> float | None:
        found = [each.verdict(within) for each in group]
        logs = [math.log(v.speedup) for v in found if v is not None and v.timed]
        return math.fsum(logs) / len(logs) if logs else None

    return paired(_of_each(first, speed), _of_each(second, speed))


def _of_each(
    outcomes: Sequence[EpisodeOutcome], number: Callable[[Sequence[EpisodeOutcome]], float | None]
) -> dict[str, float]:
    found = {name: number(group) for name, group in by_problem(outcomes).items()}
    return {name: value for name, value in found.items() if value is not None}


def _mean(rows: Array) -> Array:
    return np.asarray(rows[..., 0].mean(axis=-1))
