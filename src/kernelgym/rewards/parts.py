"""The score of one turn: its parts, weighted by a preset. The parts are listed in the package."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelgym.rewards.preset import RewardPreset
from kernelgym.types import Reply, Score, Status, Turn, Verdict
from kernelgym.verdict import CLOCK_MISMATCH, SMALL_SHARE, UNCONFIRMED_SPEED

PARTS = (
    *("format", "compile", "trials", "correct", "speed", "improvement"),
    *("custom", "length", "thinking", "penalty"),
)
"""Keys of every `Score.parts`, whatever the preset and the verdict."""


def score(
    preset: RewardPreset, reply: Reply, verdict: Verdict, history: Sequence[Turn] = ()
) -> Score:
    """Return the score of one turn.

    Args:
        preset: Preset that weighs the parts.
        reply: Kernel, thinking and defects that were read from the model's text.
        verdict: Verdict of the judge.
        history: The episode's earlier turns; only the improvement part reads them.
    """
    parts = dict.fromkeys(PARTS, 0.0)
    if verdict.status is Status.UNAVAILABLE:
        return Score(0.0, parts, valid=False)
    if reply.kernel is None or verdict.status is Status.NO_KERNEL:
        return Score(preset.format_penalty, parts | {"penalty": preset.format_penalty})
    if verdict.status is Status.REJECTED:
        return Score(preset.cheating_penalty, parts | {"penalty": preset.cheating_penalty})
    weights, speed = preset.weights, _speed(preset, verdict)
    parts |= {
        "format": weights.format * (preset.untidy if reply.defects else 1.0),
        "compile": weights.compile * verdict.compiled,
        "trials": weights.trials * _passed(verdict),
        "thinking": weights.thinking * _thinking(preset, reply),
    }
    if verdict.correct:
        earlier = max((_speed(preset, turn.verdict) for turn in history), default=0.0)
        gain = max(0.0, speed - earlier)
        if any(finding.code == SMALL_SHARE for finding in verdict.findings):
            speed, gain = speed * preset.small_share, gain * preset.small_share
        parts |= {
            "correct": weights.correct,
            "speed": weights.speed * speed,
            "improvement": weights.improvement * gain,
            "custom": weights.custom * (verdict.custom_share or 0.0),
            "length": weights.length * _fading(len(reply.kernel.source), preset.length_chars),
        }
    # No part of an honest answer is negative; the floor says so whatever is added to them.
    total = max(0.0, math.fsum(parts.values()))
    return Score(total, parts, valid=not _lacks_timing(preset, verdict))


def _lacks_timing(preset: RewardPreset, verdict: Verdict) -> bool:
    """Return True if a kernel lacks a time that its preset needs, through no fault of its own."""
    if preset.speed != "required" or not verdict.correct or verdict.timed:
        return False
    own = (UNCONFIRMED_SPEED, CLOCK_MISMATCH)
    return all(finding.code not in own for finding in verdict.findings)


def _passed(verdict: Verdict) -> float:
    if verdict.status in (Status.WRONG, Status.CORRECT) and verdict.trials:
        return verdict.trials_passed / verdict.trials
    return 0.0


def _speed(preset: RewardPreset, verdict: Verdict) -> float:
    """Return the speed part of a score before weighting; 0.0 unless correct and timed."""
    if not verdict.timed:
        return 0.0
    speedup = min(verdict.speedup_low, preset.cap)
    if preset.shape == "linear":
        return speedup
    if preset.shape == "log":
        return math.log1p(speedup) / math.log1p(preset.cap)
    if preset.shape == "clipped":
        return max(0.0, speedup - 1.0)
    return sum(speedup >= mark for mark in preset.milestones) / len(preset.milestones)


def _thinking(preset: RewardPreset, reply: Reply) -> float:
    thought = len(reply.thought.strip())
    return _fading(thought, preset.thinking_chars) if thought else 0.0


def _fading(length: int, between: tuple[int, int]) -> float:
    """Return a part that is 1.0 up to one length, 0.0 from another, and linear between."""
    whole, none = between
    return min(1.0, max(0.0, (none - length) / (none - whole)))
