"""What a run used: tokens, money and the judge's seconds.

Contract: pure. What is not known is None and never 0: a server that reports no usage has no tokens
here, and `answers` beside `counted` says of how many answers something is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from kernelgym.types import Verdict
from kernelgym.verdict import Stages

__all__ = ["JudgeTime", "Spent", "Usage", "judge_time", "per_solved", "spent"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What one answer of a model took; None where nothing is known."""

    prompt: int | None = None
    """Tokens read, cached ones included."""
    cached: int | None = None
    completion: int | None = None
    """Tokens written, those of reasoning included."""
    reasoning: int | None = None
    latency_s: float | None = None
    tries: int = 1
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What all answers took together."""

    answers: int
    counted: int
    """Answers whose tokens are known."""
    prompt: int | None
    cached: int | None
    completion: int | None
    reasoning: int | None
    usd: float | None
    priced: int
    """Answers whose price is known."""
    tries: int
    latency_s: float | None
    """Mean of an answer."""

    @property
    def tokens(self) -> int | None:
        """Tokens read and written; None if unknown."""
        if self.prompt is None or self.completion is None:
            return None
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class JudgeTime:
    """Seconds that the judge spent."""

    total_s: float
    """Wall seconds of all verdicts; they may have run side by side."""
    stages: Mapping[str, float]
    """By stage; what is left of the total was spent between stages."""
    verdicts: int
    staged: int
    """Verdicts that say how their time was spent."""


def spent(usages: Iterable[Usage]) -> Spent:
    """Return what answers took together."""
    found = list(usages)

    def total(name: str) -> int | None:
        known = [value for each in found if (value := getattr(each, name)) is not None]
        return sum(known) if known else None

    prices = [each.usd for each in found if each.usd is not None]
    waits = [each.latency_s for each in found if each.latency_s is not None]
    return Spent(
        answers=len(found),
        counted=sum(each.completion is not None for each in found),
        prompt=total("prompt"),
        cached=total("cached"),
        completion=total("completion"),
        reasoning=total("reasoning"),
        usd=math.fsum(prices) if prices else None,
        priced=len(prices),
        tries=sum(each.tries for each in found),
        latency_s=math.fsum(waits) / len(waits) if waits else None,
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
        len(found),
        len(staged),
    )


def per_solved(amount: float | None, solved: int) -> float | None:
    """Return an amount per solved problem; None if that is unknown."""
    return None if amount is None or not solved else amount / solved
