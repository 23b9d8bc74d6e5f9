"""Penalty for diverging from the base model, token by token.

Contract: a service's losses have no such term, so it is part of what each token is worth: the
advantage of a sampled token falls by ``beta * (d - mean)``, where d is how much more probable the
sampler found it than the base model does, in nats. On policy, that is the gradient of
``beta * KL(policy || base)`` of each token's distribution. The mean is over the step's tokens, as
the loss weighs them: it changes nothing of the expected gradient and takes away most of its noise.

The base model is asked for each row once. A request that fails is repeated twice; then the learner
counts as lost, before anything of the step was learned.

It does not cover the reference of a run that begins with another run's weights: that, too, is the
base model. Needs no SDK.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelgym.episodes.playing import side_by_side
from kernelgym_train.backends.tinker.recovery import asked_again
from kernelgym_train.backends.tinker.service import Sampler
from kernelgym_train.types import Sample


@dataclass(frozen=True, slots=True)
class Divergence:
    """Divergence of a step's sampler from the base model."""

    kl: float
    """Estimate of the divergence ``KL(policy || base)``, in nats a token: the mean of
    ``exp(-d) + d - 1`` (http://joschu.net/blog/kl-approx.html), which is never negative."""
    excess: tuple[tuple[float, ...], ...]
    """Difference d of each token of each sample, minus the mean over all tokens."""


def divergence(samples: Sequence[Sample], reference: Sequence[Sequence[float]]) -> Divergence:
    """Return the divergence of samples from the base model.

    Args:
        samples: Training samples, with the sampler's log-probabilities.
        reference: The base model's log-probability of each token of each sample.

    Raises:
        ValueError: If log-probabilities are missing.
    """
    apart = []
    for sample, base in zip(samples, reference, strict=True):
        if sample.logprobs is None:
            raise ValueError(f"sample {tuple(sample.key)} has no log-probabilities of its sampler")
        apart.append([mine - its for mine, its in zip(sample.logprobs, base, strict=True)])
    tokens = [value for values in apart for value in values]
    if not tokens:
        return Divergence(0.0, tuple(() for _ in samples))
    sums = [sample.weight * math.fsum(own) for sample, own in zip(samples, apart, strict=True)]
    whole = math.fsum(sample.weight * len(sample.ids) for sample in samples)
    mean = math.fsum(sums) / whole if whole else 0.0
    kl = math.fsum(math.exp(-value) + value - 1.0 for value in tokens) / len(tokens)
    return Divergence(kl, tuple(tuple(value - mean for value in values) for values in apart))


async def reference_logprobs(
    base: Sampler, samples: Sequence[Sample], *, limit_s: float, at_once: int | None = None
) -> list[tuple[float, ...]]:
    """Return the base model's log-probabilities of each sample's tokens.

    Args:
        base: Sampler of the base model.
        samples: Training samples.
        limit_s: Seconds that the request for one sample may take.
        at_once: Largest number of requests at the same time; None for all.

    Raises:
        Exception: Failure of the last of three requests for a sample.
    """

    async def one(sample: Sample) -> tuple[float, ...]:
        return await asked_again(lambda: base.score(sample.prompt_ids, sample.ids, limit_s=limit_s))

    return await side_by_side(samples, one, at_once)
