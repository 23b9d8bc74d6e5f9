"""The loss that a Tinker service is asked for, and the learning rate of each update.

Contract: pure functions of the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelgym_train.config.config import Config
from kernelgym_train.config.sections import OptimiserConfig


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss that a Tinker service computes, with its parameters."""

    name: str
    """Name by which the Tinker service knows the loss."""
    config: Mapping[str, float] = field(default_factory=dict)
    """Bounds of the ratio of the learner's and the sampler's probabilities, by parameter."""
    beta: float = 0.0
    """Weight of DRO's quadratic penalty, for rows whose tokens weigh 1."""

    def told(self, weight: float) -> Mapping[str, float]:
        """Return the parameters of the loss to send to the service.

        DRO's penalty is not among the advantages, which carry the weight of their tokens. It is
        weighed here, so that the loss is ``weight * (advantage * logp - beta / 2 * d ** 2)``.

        Args:
            weight: Weight of each token of the rows.
        """
        return {"beta": self.beta * weight} if self.name == "dro" else self.config


def loss_of(config: Config) -> Loss:
    """Return the loss of a run whose settings were checked."""
    optimiser = config.optimiser
    name = optimiser.loss
    if name == "auto":
        name = "gspo" if optimiser.importance == "sequence" else "ppo"
    if name == "dro":
        return Loss(name, beta=config.tinker.dro_beta)
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
        rate: Learning rate after the warm-up.
        update: Number of the update, from 0; updates without a training sample count.
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
