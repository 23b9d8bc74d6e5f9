"""Reward presets: the weight of each part, and the settings by which the parts are computed.

Building one checks that it keeps the contract of `kernelgym.rewards`; one that would pay a wrong
answer more than a correct one, or a cheating one more than nothing, cannot be built.
It scores nothing: `kernelgym.rewards.parts` does.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from kernelgym.errors import UnknownName, UsageError

SpeedNeed = Literal["none", "optional", "required"]
"""Whether a preset scores speed; see `RewardPreset.speed`."""
SpeedShape = Literal["linear", "log", "clipped", "milestones"]
SHAPES: tuple[SpeedShape, ...] = ("linear", "log", "clipped", "milestones")
"""Functions that turn a speedup into the speed part; see `RewardPreset.shape`."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weight of each part; none is negative."""

    format: float = 0.0
    compile: float = 0.0
    trials: float = 0.0
    correct: float = 0.0
    speed: float = 0.0
    improvement: float = 0.0
    custom: float = 0.0
    length: float = 0.0
    thinking: float = 0.0

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not (math.isfinite(value) and value >= 0.0):
                raise UsageError(f"reward weight {name} must be finite and >= 0, got {value}")


@dataclass(frozen=True, slots=True)
class RewardPreset:
    """Settings by which a turn is scored. Building a preset checks that it keeps the contract."""

    name: str
    weights: Weights
    speed: SpeedNeed = "none"
    """Whether the preset scores speed. ``none``: it does not. ``optional``: an untimed kernel earns
    nothing for it. ``required``: the preset is refused where kernels cannot be timed."""
    shape: SpeedShape = "log"
    """Function of ``s = min(speedup_low, cap)`` that gives the speed part: ``linear`` is s; ``log``
    is ``log(1 + s) / log(1 + cap)``; ``clipped`` is ``max(s - 1, 0)``, with nothing for a kernel
    slower than the reference; ``milestones`` is the share of `milestones` reached."""
    cap: float = 10.0
    """Speedup above which a kernel earns nothing more; higher ones are more often loopholes."""
    milestones: tuple[float, ...] = (1.0, 1.2, 1.5, 2.0, 3.0)
    """Speedups in rising order, for ``shape="milestones"``; those above `cap` are never reached."""
    untidy: float = 0.75
    """Share of the format part for an answer whose form has defects."""
    small_share: float = 1.0
    """Share of the speed and improvement parts for a correct kernel with the soft finding
    ``small_share``: torch does nearly all of the work."""
    length_chars: tuple[int, int] = (2_000, 8_000)
    """Numbers of characters of a kernel's source up to which the length part is 1, and from which
    it is 0."""
    thinking_chars: tuple[int, int] = (2_000, 8_000)
    """Numbers of characters of thinking up to which the thinking part is 1, and from which it is 0;
    without thinking it is 0."""
    format_penalty: float = 0.0
    """Score of an answer that cannot be parsed; at most 0."""
    cheating_penalty: float = 0.0
    """Score of a rejected kernel; at most 0."""

    def __post_init__(self) -> None:
        if self.speed not in ("none", "optional", "required"):
            raise UnknownName("need of speed", self.speed, ("none", "optional", "required"))
        if self.shape not in SHAPES:
            raise UnknownName("shape of the speed part", self.shape, SHAPES)
        for name in ("format_penalty", "cheating_penalty"):
            if not -math.inf < getattr(self, name) <= 0.0:
                raise UsageError(f"{name} must be finite and at most 0, got {getattr(self, name)}")
        for name in ("untidy", "small_share"):
            if not 0.0 <= (share := getattr(self, name)) <= 1.0:
                raise UsageError(f"{name} is a share: it must lie in [0, 1], got {share}")
        if not 0.0 < self.cap < math.inf:
            raise UsageError(f"cap must be finite and above 0, got {self.cap}")
        self._check_thresholds()
        self._check_weights()

    def _check_thresholds(self) -> None:
        rising = all(a < b for a, b in zip(self.milestones, self.milestones[1:], strict=False))
        usable = all(0.0 < mark < math.inf for mark in self.milestones)
        if not (self.milestones and rising and usable):
            raise UsageError(f"milestones must be rising speedups above 0, got {self.milestones}")
        for name in ("length_chars", "thinking_chars"):
            whole, none = getattr(self, name)
            if not 0 <= whole < none:
                raise UsageError(f"{name} must be two rising lengths, got {(whole, none)}")

    def _check_weights(self) -> None:
        weights = self.weights
        if self.speed == "none" and (weights.speed or weights.improvement):
            raise UsageError(f"reward {self.name!r} weighs speed but declares speed='none'")
        # All else that is paid without being right is paid in full for being right.
        if weights.format * (1.0 - self.untidy) + weights.thinking > weights.correct:
            raise UsageError(
                f"reward {self.name!r} would pay a tidy wrong answer more than an untidy correct "
                "one; raise the weight of correct, raise untidy, or lower format or thinking"
            )
