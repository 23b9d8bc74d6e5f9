"""Compare the speed of two kernels by rounds of fresh verdicts.

One verdict ranks no two kernels: its interval is 10 % wide on the CPU, because memory's layout and
the machine's load differ from process to process. A duel repeats both verdicts, each in a process
of its own, until the difference stands out from what differs between rounds.

Contract:
- Each round judges both kernels with one fresh seed, so that both get the same inputs and no cache
  answers. The kernel that goes first changes from round to round, so a steady drift of the machine
  favours neither.
- An evaluator that can time kernels in turns (`kernelgym.evaluators.abilities.Duels`) is asked for
  that once a round of full verdicts has found both kernels correct and timed them. Then only
  rounds in turns are measured. Where they cannot decide, full verdicts do.
- In turns, a round's ratio is that of the kernels' own times, under one hold of the device. For
  full verdicts it is that of the two speedups: each is measured beside the reference, so what
  slows the machine for both sides cancels. The reference's own time may differ by a factor of two
  from verdict to verdict on a host with other work.
- The interval allows for stopping early: of duels between equally fast kernels, 5 % at most are
  decided.
- A kernel that fails is a result, not an error. Where both fail on a round's inputs, the round
  measures nothing: kernels of one origin share the inputs that they are wrong on.

Not covered: load that differs between the two kernels in the same way in every round.
"""

from __future__ import annotations

import functools
import hashlib
import math
import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernelgym.errors import UsageError
from kernelgym.evaluators.abilities import Duels
from kernelgym.types import Evaluator, Kernel, Problem, Verdict

Decided = Literal["first", "second", "neither"]

_LEAST_ROUNDS = 3
_MISS = 0.05
_BISECTIONS = 60  # halve the bracket to below a float's precision


@dataclass(frozen=True, slots=True)
class Duel:
    """Result of a duel: which of two kernels is faster, and by how much."""

    ratio: float
    """Time of the first kernel over that of the second; 0.0 if no round measured both."""
    low: float
    """Lower end of the ratio's 95 % interval, which allows for differences between processes."""
    high: float
    """Upper end of the ratio's 95 % interval."""
    rounds: int
    """Number of rounds, those that measured nothing included."""
    verdicts: tuple[tuple[Verdict, Verdict], ...]
    """Verdicts on the first and the second kernel, a pair for each round."""
    decided: Decided
    """The kernel that is faster, or the only one that is correct; ``neither`` if unknown."""


def duel(
    evaluator: Evaluator,
    problem: Problem,
    first: Kernel,
    second: Kernel,
    *,
    width: float = 0.02,
    most: int = 12,
    seed: str = "",
    judged: bool = False,
) -> Duel:
    """Judge two kernels alternately until one is known to be faster.

    With d_i the log-ratio of the kernels' times in round i of n, m their mean and s their standard
    deviation, the interval of the log-ratio is Student's, m +- t s / sqrt(n), where t is exceeded
    with probability 0.05 / (2 L) at n - 1 degrees of freedom. L = most - 2 is how many times the
    duel may look at the interval and stop, from the third round on. By Bonferroni's inequality, all
    L intervals hold the true ratio with a probability of 95 %, so the one at which the duel stops
    does (Jennison and Turnbull, Group Sequential Methods, 1999, chapters 2 and 9).

    The duel ends after a round, the third at the earliest, if the interval does not hold 1, if it
    is at most `width` wide, or if `most` rounds were judged. It ends at once if one kernel fails
    where the other is correct, which has won then. Rounds that measured nothing, since the judge
    failed or gave no time, since both kernels failed, or since the two were timed against different
    baselines, count as rounds; after three of them the duel ends undecided.

    Args:
        evaluator: Judges both kernels; it must time them.
        problem: The problem that both solve.
        first: One kernel.
        second: The other kernel.
        width: Width of the interval, relative to its lower end, at which the difference is small
            enough to stop.
        most: Largest number of rounds, 3 or more. A first round of full verdicts, if rounds in
            turns follow, is not one of them.
        seed: Secret that the rounds' seeds follow from; empty to draw them.
        judged: Whether both kernels had correct verdicts before, so that a round of full verdicts
            need not be the first one where the evaluator times kernels in turns.

    Raises:
        UsageError: If `most` is less than 3, or `width` is negative or no number.
    """
    if most < _LEAST_ROUNDS:
        raise UsageError(f"most={most}: a duel takes {_LEAST_ROUNDS} rounds at least")
    if not 0.0 <= width < math.inf:
        raise UsageError(f"width={width}: give a relative width of 0 or more, such as 0.02")
    looks = most - _LEAST_ROUNDS + 1
    duels = evaluator.ability(Duels)
    may_turn, in_turns, blanks = judged, False, 0
    rounds: list[tuple[Verdict, Verdict]] = []
    logs: list[float] = []
    decided: Decided = "neither"
    while len(rounds) < most and blanks < _LEAST_ROUNDS:
        number = len(rounds)
        shared, order = _seed_of_round(seed, number), (number % 2, 1 - number % 2)
        kernels = [(first, second)[side] for side in order]
        pair = None
        if duels is not None and may_turn:
            pair = duels.duel_round(problem, kernels, seed=shared)
            if pair is None:
                duels = None  # it was in vain: not asked again
            elif not in_turns and pair[0].timing is not None:
                # Whole verdicts measure less well: their round showed that both are right.
                in_turns, most, logs = True, most + len(logs), []
        if pair is None:
            one, other = (evaluator.evaluate(problem, kernel, seed=shared) for kernel in kernels)
            pair = one, other
            may_turn = one.timing is not None and other.timing is not None
        found = (pair[order[0]], pair[order[1]])
        rounds.append(found)
        if _failed(found[0]) or _failed(found[1]):
            if found[0].correct == found[1].correct:
                blanks += 1
                continue  # on the same inputs: it tells nothing of which one is faster
            decided = "first" if found[0].correct else "second"
            break
        if (ratio := time_ratio(found[0], found[1])) is None:
            blanks += 1
            continue
        logs.append(math.log(ratio))
        if len(logs) < _LEAST_ROUNDS:
            continue
        low, high = _interval(logs, looks)
        if low > 0.0 or high < 0.0:
            decided = "second" if low > 0.0 else "first"
            break
        if high - low <= math.log1p(width):
            break
    low, middle, high = (0.0, 0.0, 0.0)
    if logs:
        low, high = map(_exp, _interval(logs, looks))
        middle = _exp(statistics.fmean(logs))
    return Duel(middle, min(low, middle), max(high, middle), len(rounds), tuple(rounds), decided)


def _exp(log: float) -> float:
    """Return the exponential, limited to finite numbers, since JSON has no infinity."""
    return math.exp(max(-700.0, min(log, 700.0)))


def _failed(verdict: Verdict) -> bool:
    """Return True if a verdict of a duel shows that its kernel failed."""
    return verdict.valid and not verdict.correct


def time_ratio(one: Verdict, other: Verdict) -> float | None:
    """Return the first kernel's time over the second's; None if not known.

    Args:
        one: Verdict on the first kernel.
        other: Verdict on the second kernel. If both were timed in turns, their own times are
            compared, otherwise their speedups over the reference.
    """
    if one.timing is None or other.timing is None:
        return None
    if one.timing.turn_ms and other.timing.turn_ms:
        return one.timing.turn_ms / other.timing.turn_ms
    if one.timing.baseline != other.timing.baseline:
        return None  # with "best", the faster baseline may differ: the speedups do not compare
    return other.timing.speedup / one.timing.speedup


def _seed_of_round(seed: str, number: int) -> str:
    """Return the seed of a round: 32 hexadecimal digits, random ones if `seed` is empty."""
    if not seed:
        return secrets.token_hex(16)
    return hashlib.sha256(f"{seed}:duel:{number}".encode()).hexdigest()[:32]


def _interval(logs: Sequence[float], looks: int) -> tuple[float, float]:
    """Return the confidence interval of the mean of logarithms; unbounded for a single value.

    Args:
        logs: Log-ratios of the rounds, one at least.
        looks: Number of times that the caller may look at such an interval and stop.
    """
    if len(logs) < 2:
        return -math.inf, math.inf
    middle = statistics.fmean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    reach = error * _student(len(logs) - 1, _MISS / (2 * looks))
    return middle - reach, middle + reach


@functools.lru_cache(maxsize=256)
def _student(freedom: int, tail: float) -> float:
    """Return the value that Student's t exceeds with probability `tail`.

    Args:
        freedom: Degrees of freedom, 1 or more.
        tail: A probability above 0 and below one half.
    """
    low, high = 0.0, 1.0
    while _upper_tail(freedom, high) > tail:
        low, high = high, 2.0 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _upper_tail(freedom, middle) > tail else (low, middle)
    return high


def _upper_tail(freedom: int, value: float) -> float:
    """Return the probability that Student's t exceeds a positive value.

    The finite sums of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(value / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    term, total = (cosine, 0.0) if freedom % 2 else (1.0, 0.0)
    for k in range(freedom % 2, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (k + 1) / (k + 2)
    if freedom % 2:
        inside = 2.0 / math.pi * (angle + sine * total)
    else:
        inside = sine * total
    return (1.0 - inside) / 2.0
