"""Records of training: requests to a policy, its completions, rollouts and training samples.

Contract: frozen records without behaviour beyond a check of their own form. Token ids are those
that were sampled, never a text tokenised again. All records pickle and compare by value.

An episode and its turns are kernelgym's (`kernelgym.Trajectory`); tokens are kept beside them and
not in them. `kernelgym_train.credit.credit` computes advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from kernelgym import Message, PolicyFailure, Trajectory


class PromptTooLong(PolicyFailure):
    """Prompts and answers do not fit into the model's context.

    Args:
        message: Message that says what was given, what fits, and what to do.
        places: Indices of the refused requests in their batch; the other requests can be answered.
    """

    def __init__(self, message: str, places: tuple[int, ...]) -> None:
        super().__init__(message)
        self.places = places

    def __reduce__(self) -> tuple[type[PromptTooLong], tuple[str, tuple[int, ...]]]:
        return type(self), (str(self), self.places)


Finish = Literal["stop", "length"]
"""Reason that a completion ended: the model ended it, or it reached the limit of new tokens."""


class Key(NamedTuple):
    """Identifier of one turn of a run: step, group, trajectory, turn. Keys sort in that order."""

    step: int
    """Training step, from 0."""
    problem: int
    """Number of the group in the step, from 0, groups of refill rounds included; the same problem
    may be drawn for two groups of a step."""
    trajectory: int = 0
    """Number of the trajectory in its group, from 0."""
    turn: int = 0
    """Number of the turn in its trajectory, from 0."""

    @property
    def group(self) -> tuple[int, int]:
        """Step and number of the group; equal for all trajectories of a group."""
        return self.step, self.problem


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Request to a policy for one answer."""

    key: Key
    """Key of the turn that the request is for."""
    messages: tuple[Message, ...]
    """Messages of the prompt, as the observer wrote them."""
    seed: int
    """Seed of this answer's sampling, for policies that seed each answer by itself."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Answer of a policy, as tokens and as text."""

    text: str
    """The answer's text, special tokens left out."""
    prompt_ids: tuple[int, ...]
    """Token ids of the prompt."""
    ids: tuple[int, ...]
    """Token ids that were sampled, including the one that ends the answer."""
    logprobs: tuple[float, ...] | None
    """Log-probability of each of `ids` under the sampler, in nats; None if the sampler gives
    none."""
    finish: Finish
    """Reason that sampling ended. ``length`` is a defect of the answer, even if a kernel can be
    read from it."""
    policy_version: int
    """Number of optimiser steps that the sampling weights had gone through."""

    def __post_init__(self) -> None:
        _check_lengths(self.ids, self.logprobs)


@dataclass(frozen=True, slots=True)
class Rollout:
    """Episode with the tokens of its prompts and answers."""

    key: Key
    """Key of the first turn."""
    trajectory: Trajectory
    """Trajectory that was played."""
    completions: tuple[Completion, ...]
    """Completions, one for each turn of the trajectory."""

    def __post_init__(self) -> None:
        if len(self.completions) != len(self.trajectory.turns):
            raise ValueError(
                f"{len(self.completions)} completions for {len(self.trajectory.turns)} turns"
            )
        if self.key.turn:
            raise ValueError(
                f"the key of a rollout must be that of its first turn, 0; got {tuple(self.key)}"
            )


@dataclass(frozen=True, slots=True)
class Sample:
    """Training sample of one turn; its loss is ``-sum(weight * advantage * logp)`` over `ids`."""

    key: Key
    """Key of the turn."""
    prompt_ids: tuple[int, ...]
    """Token ids of the prompt; they are not in the loss."""
    ids: tuple[int, ...]
    """Token ids of the answer, which are in the loss."""
    logprobs: tuple[float, ...] | None
    """Log-probability of each of `ids` under the sampler, in nats; None if the sampler gave
    none."""
    advantage: float
    """Advantage of the turn over its baseline; the same for all of its tokens."""
    weight: float
    """Weight of each token of the answer in the loss."""

    def __post_init__(self) -> None:
        _check_lengths(self.ids, self.logprobs)


def _check_lengths(ids: tuple[int, ...], logprobs: tuple[float, ...] | None) -> None:
    if logprobs is not None and len(logprobs) != len(ids):
        raise ValueError(f"{len(logprobs)} log-probabilities for {len(ids)} tokens")
