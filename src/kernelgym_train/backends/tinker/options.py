"""A Tinker service's losses, and our learning rates. Contract: pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelgym import UnknownName, UsageError
from kernelgym_train.config.config import Config
from kernelgym_train.config.sections import OptimiserConfig

__all__ = ["LOSSES", "Loss", "learning_rate_at", "loss_of"]

LOSSES = ("ppo", "importance_sampling", "cispo")
"""Losses that the backend knows; they differ in how ratios are clipped."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss by the service's name, with what it is told."""

    name: str
    config: Mapping[str, float] = field(default_factory=dict)
    """Bounds of the ratios of learner and sampler."""


def loss_of(config: Config) -> Loss:
    """Return the loss of a run.

    Raises:
        UsageError: If the backend does not know the loss, or what is asked of it.
    """
    optimiser = config.optimiser
    if optimiser.importance != "token":
        raise UsageError(
            f"optimiser.importance={optimiser.importance} is not trained with on Tinker; leave it "
            "token"
        )
    if optimiser.kl_beta:
        raise UsageError(
            f"optimiser.kl_beta={optimiser.kl_beta} is not trained with on Tinker; leave it 0"
        )
    name = "ppo" if optimiser.loss == "auto" else optimiser.loss
    if name not in LOSSES:
        raise UnknownName("loss of Tinker", name, LOSSES)
    if name == "importance_sampling":
        return Loss(name)
    bounds = {
        "clip_low_threshold": 1.0 - optimiser.clip_low,
        "clip_high_threshold": 1.0 + optimiser.clip_high,
    }
    return Loss(name, bounds)


def learning_rate_at(optimiser: OptimiserConfig, rate: float, update: int) -> float:
    """Return the learning rate of one update, by transformers' schedules.

    Args:
        optimiser: Schedule, warm-up, steps and updates per step.
        rate: After the warm-up.
        update: Number of the update, from 0, those that taught nothing included.
    """
    warm = optimiser.warmup_steps * optimiser.updates_per_step
    total = optimiser.steps * optimiser.updates_per_step
    if update < warm:
        return rate * update / warm
    done = (update - warm) / max(1, total - warm)
    if optimiser.schedule == "linear":
        return rate * max(0.0, 1.0 - done)
    if optimiser.schedule == "cosine":
        return rate * max(0.0, 0.5 * (1.0 + math.cos(math.pi * done)))
    return rate
