"""Tokens, money and judge time of a run.

Contract: pure. What is not known is None and never 0: a server that reports no usage has no tokens
here, and `counted` is the number of the `answers` whose tokens are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from kernelgym.benchmark.run.generations import Generation, TokenUsage
from kernelgym.types import Verdict
from kernelgym.verdict import Stages


@dataclass(frozen=True, slots=True)
class TotalSpent:
    """Sums over the answers of a run."""

    answers: int
    counted: int
    """Number of answers whose tokens are known."""
    usage: TokenUsage | None
    """Tokens of the answers whose tokens are known; None if there is none."""
    usd: float | None
    """Cost in US dollars; None if no price is known."""

    @property
    def tokens(self) -> int | None:
        """Number of tokens read and written; None if unknown."""
        return None if self.usage is None else self.usage.prompt + self.usage.completion


@dataclass(frozen=True, slots=True)
class JudgeTime:
    """Time that the judge spent on verdicts, in seconds."""

    total_s: float
    """Sum of the verdicts' wall seconds; verdicts may have been judged at the same time."""
    stages: Mapping[str, float]
    """Seconds by stage; the rest of the total was spent between stages."""


def spent(answers: Iterable[Generation]) -> TotalSpent:
    """Return the sums of tokens and US dollars that answers took."""
    found = list(answers)
    known = [each.usage for each in found if each.usage is not None]
    prices = [each.usd for each in found if each.usd is not None]
    sums = (sum(getattr(each, name) for each in known) for name in TokenUsage.__slots__)
    return TotalSpent(
        answers=len(found),
        counted=len(known),
        usage=TokenUsage(*sums) if known else None,
        usd=math.fsum(prices) if prices else None,
    )


def judge_time(verdicts: Iterable[Verdict]) -> JudgeTime:
    """Return the judge's seconds by stage."""
    found = list(verdicts)
    staged = [each.stages for each in found if each.stages is not None]
    return JudgeTime(
        math.fsum(each.wall_s for each in found),
        {
            each.name.removesuffix("_s"): math.fsum(getattr(one, each.name) for one in staged)
            for each in fields(Stages)
        },
    )


def per_solved(amount: float | None, solved: int) -> float | None:
    """Return an amount per solved problem; None if that is unknown."""
    return None if amount is None or not solved else amount / solved
