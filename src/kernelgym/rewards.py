"""Rewards: the score of one turn, from parts weighted by a preset.

Contract, for every preset that can be built:

- an unparsable or rejected answer scores the penalty, at most 0, whatever else it achieved; an
  honest failure never scores below 0;
- a correct kernel never scores less than a wrong one;
- the score never falls as `speedup_low` rises (the low end of the interval, not the estimate);
- an `unavailable` verdict scores 0.0: trainers drop the trajectory, see `Trajectory.valid`.

Parts, each in [0, 1] before weighting unless said otherwise:

- ``format``: 1 for a clean answer, `RewardPreset.untidy` for one with defects;
- ``compile``: 1 if it compiled;
- ``correct``: 1 if correct; a wrong kernel gets `RewardPreset.partial` times its passed trials;
- ``speed``: of a correct, timed kernel: ``min(speedup_low, cap)`` (``linear``, Kevin-32B's, arXiv
  2507.11948, not confined to [0, 1]) or ``log(1 + that) / log(1 + cap)`` (``log``). Neither has a
  dead zone below a speedup of 1;
- ``improvement``: how far ``speed`` rose over the best earlier turn; clipped at 0. (No preset
  that ships weighs it: with it, being fast at once can pay less than getting there in steps.)

Discounting is a training quantity: `discounted_returns` and `Trajectory.returns`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import language as find_language
from kernelgym.types import Reply, Score, Status, Turn, Verdict, discounted_returns

__all__ = [
    "PARTS",
    "REWARDS",
    "RewardPreset",
    "Weights",
    "check_speed",
    "discounted_returns",
    "reward_preset",
    "score",
]

PARTS = ("format", "compile", "correct", "speed", "improvement", "penalty")
"""Keys of every `Score.parts`, whatever the preset and the verdict."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weight of each part; none is negative."""

    format: float = 0.0
    compile: float = 0.0
    correct: float = 0.0
    speed: float = 0.0
    improvement: float = 0.0

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not (math.isfinite(value) and value >= 0.0):
                raise UsageError(f"reward weight {name} must be finite and >= 0, got {value}")


@dataclass(frozen=True, slots=True)
class RewardPreset:
    """A way of scoring a turn. Building one checks that it keeps the module's contract."""

    name: str
    weights: Weights
    speed: Literal["none", "optional", "required"] = "none"
    """Whether it looks at speed; ``required`` makes no sense where kernels cannot be timed."""
    shape: Literal["linear", "log"] = "log"
    """How a speedup becomes the speed part."""
    cap: float = 10.0
    """Speedups above this earn nothing more; what looks faster is more often a loophole."""
    partial: float = 0.0
    """Share of the correctness part that a wrong kernel can earn by passing some trials."""
    untidy: float = 0.75
    """Share of the format part for an answer whose form has defects."""
    penalty: float = 0.0
    """What an unparsable or rejected answer scores; at most 0."""

    def __post_init__(self) -> None:
        if not -math.inf < self.penalty <= 0.0:
            raise UsageError(f"penalty must be finite and at most 0, got {self.penalty}")
        if not (0.0 <= self.partial <= 1.0 and 0.0 <= self.untidy <= 1.0):
            raise UsageError("partial and untidy are shares: they must lie in [0, 1]")
        if not 0.0 < self.cap < math.inf:
            raise UsageError(f"cap must be finite and above 0, got {self.cap}")
        if self.speed == "none" and (self.weights.speed or self.weights.improvement):
            raise UsageError(f"reward {self.name!r} weighs speed but declares speed='none'")
        if self.weights.format * (1 - self.untidy) > self.weights.correct * (1 - self.partial):
            raise UsageError(
                f"reward {self.name!r} would pay a tidy wrong answer more than an untidy correct "
                "one; raise the weight of correct, or raise untidy, or lower partial"
            )


REWARDS: Mapping[str, RewardPreset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            RewardPreset("stage1", Weights(0.3, 0.5, 0.2), partial=0.5, penalty=-0.1),
            RewardPreset("stage2", Weights(0.1, 0.2, 0.7), partial=0.5, penalty=-0.1),
            RewardPreset("stage3", Weights(0.05, 0.1, 0.5, 0.35), speed="optional", penalty=-0.1),
            RewardPreset("sparse", Weights(correct=1.0)),
            RewardPreset(
                "kevin", Weights(correct=0.3, speed=1.0), speed="required", shape="linear"
            ),
        )
    }
)
"""The presets that ship: three stages from form to speed, a sparse one, and Kevin-32B's."""


def reward_preset(which: str | RewardPreset) -> RewardPreset:
    """Return `which` itself, or the shipped preset of that name.

    Raises:
        UnknownName: If no shipped preset has that name.
    """
    if isinstance(which, RewardPreset):
        return which
    try:
        return REWARDS[which]
    except (KeyError, TypeError):
        raise UnknownName("reward preset", which, REWARDS) from None


def check_speed(preset: RewardPreset, language: str, device: str) -> None:
    """Refuse a preset that needs speed where this language cannot be timed on this device.

    Raises:
        UsageError: If so; names the shipped presets that fit.
    """
    entry = find_language(language)
    if preset.speed == "required" and not entry.is_timed(device):
        fitting = ", ".join(name for name, other in REWARDS.items() if other.speed != "required")
        raise UsageError(
            f"reward {preset.name!r} needs measured speed, but {language!r} is not timed on "
            f"device {device!r} (it is on: {', '.join(entry.timed_on)}); "
            f"rewards that fit: {fitting}"
        )


def score(
    preset: RewardPreset, reply: Reply, verdict: Verdict, history: Sequence[Turn] = ()
) -> Score:
    """Return the score of one turn.

    Args:
        preset: How to score.
        reply: What was read from the model's text.
        verdict: What the judge said.
        history: The episode's earlier turns; only the improvement part reads them.
    """
    parts = dict.fromkeys(PARTS, 0.0)
    if verdict.status is Status.UNAVAILABLE:
        return Score(0.0, parts)
    if reply.kernel is None or verdict.status in (Status.NO_KERNEL, Status.REJECTED):
        return Score(preset.penalty, parts | {"penalty": preset.penalty})
    weights = preset.weights
    speed = _speed(preset, verdict)
    earlier = max((_speed(preset, turn.verdict) for turn in history), default=0.0)
    parts |= {
        "format": weights.format * (preset.untidy if reply.defects else 1.0),
        "compile": weights.compile * verdict.compiled,
        "correct": weights.correct * _correctness(preset, verdict),
        "speed": weights.speed * speed,
        "improvement": weights.improvement * max(0.0, speed - earlier),
    }
    return Score(max(0.0, math.fsum(parts.values())), parts)


def _correctness(preset: RewardPreset, verdict: Verdict) -> float:
    if verdict.correct:
        return 1.0
    if verdict.status is Status.WRONG and verdict.trials:
        return preset.partial * verdict.trials_passed / verdict.trials
    return 0.0


def _speed(preset: RewardPreset, verdict: Verdict) -> float:
    """Return the speed part before weighting; 0.0 unless correct and timed."""
    speedup = min(verdict.speedup_low, preset.cap)
    if preset.shape == "linear":
        return speedup
    return math.log1p(speedup) / math.log1p(preset.cap)
