"""The nouns of training: what is asked of a policy, what it answers, and what is learned from it.

Contract: frozen records without behaviour beyond a check of their own form. Token ids are those
that were sampled, never a text tokenised again. Everything here pickles and compares by value.

An episode and its turns are kernelgym's (`kernelgym.Trajectory`); tokens are kept beside them and
not in them. Who computes an advantage is `kernelgym_train.credit.credit`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from kernelgym import Message, PolicyFailure, Trajectory

__all__ = ["Completion", "Finish", "Key", "PromptTooLong", "Rollout", "Sample", "SampleRequest"]


class PromptTooLong(PolicyFailure):
    """Prompts and answers do not fit into the model's context.

    Args:
        message: What was given, what fits, and what to do.
        places: Their places among the requests. A batch without them can be answered.
    """

    def __init__(self, message: str, places: tuple[int, ...]) -> None:
        super().__init__(message)
        self.places = places

    def __reduce__(self) -> tuple[type[PromptTooLong], tuple[str, tuple[int, ...]]]:
        return type(self), (str(self), self.places)


Finish = Literal["stop", "length"]
"""Why a completion ended: the model ended it, or it ran into the limit of new tokens."""


class Key(NamedTuple):
    """Names one turn of one run. Keys sort by the order in which a step is laid out."""

    step: int
    """Training step, from 0."""
    problem: int
    """Place of the group among the step's groups, from 0, those of refill rounds included; the
    same problem may be drawn twice in a step."""
    trajectory: int = 0
    """Place of the trajectory in its group, from 0."""
    turn: int = 0
    """Place of the turn in its trajectory, from 0."""

    @property
    def group(self) -> tuple[int, int]:
        """What the trajectories that are compared with each other have in common."""
        return self.step, self.problem


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One answer that is asked of a policy."""

    key: Key
    """Key of the turn that the request is for."""
    messages: tuple[Message, ...]
    """Messages that the model reads, as its observer wrote them."""
    seed: int
    """Seed of this answer's sampling, for policies that can be seeded answer by answer."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of a policy, as tokens and as text."""

    text: str
    """The answer's text, special tokens left out."""
    prompt_ids: tuple[int, ...]
    """Ids of what the model read."""
    ids: tuple[int, ...]
    """Ids that were sampled, the one that ends the answer included."""
    logprobs: tuple[float, ...] | None
    """Log-probability of each of `ids` under the sampler, or None if it does not tell."""
    finish: Finish
    """``length`` is a defect of the answer, even if a kernel can be read from it."""
    policy_version: int
    """Number of optimiser steps that the policy had taken."""

    def __post_init__(self) -> None:
        _check_lengths(self.ids, self.logprobs)


@dataclass(frozen=True, slots=True)
class Rollout:
    """One episode with the tokens it was played with."""

    key: Key
    """The key of its first turn."""
    trajectory: Trajectory
    """Trajectory that was played."""
    completions: tuple[Completion, ...]
    """One per turn of the trajectory."""

    def __post_init__(self) -> None:
        if len(self.completions) != len(self.trajectory.turns):
            raise ValueError(
                f"{len(self.completions)} completions for {len(self.trajectory.turns)} turns"
            )
        if self.key.turn:
            raise ValueError(f"a rollout has the key of its first turn, got {tuple(self.key)}")


@dataclass(frozen=True, slots=True)
class Sample:
    """One turn to learn from: the loss is ``-sum(weight * advantage * logp)`` over its `ids`."""

    key: Key
    """Key of the turn."""
    prompt_ids: tuple[int, ...]
    """Ids of what the model read; nothing is learned from them."""
    ids: tuple[int, ...]
    """Ids it is trained on."""
    logprobs: tuple[float, ...] | None
    """Log-probability of each of `ids` under the sampler, or None if it did not tell."""
    advantage: float
    """Advantage of the turn over its baseline; the same for all of its tokens."""
    weight: float
    """Weight of each of its tokens in the loss."""

    def __post_init__(self) -> None:
        _check_lengths(self.ids, self.logprobs)


def _check_lengths(ids: tuple[int, ...], logprobs: tuple[float, ...] | None) -> None:
    if logprobs is not None and len(logprobs) != len(ids):
        raise ValueError(f"{len(logprobs)} log-probabilities for {len(ids)} tokens")
