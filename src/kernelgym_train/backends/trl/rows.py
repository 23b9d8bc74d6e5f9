"""Rows that TRL gets for a step: one per training sample, and fillers up to the wanted number.

Contract: as many rows as were asked for; the samples first, in the order of their keys, with the
ids that were sampled; fillers are one prompt token and the end token, outside of the loss, and
have no reward. Advantage and weight of each row are the sample's own (0 for a filler).

Pure: no tensors, no trainer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym_train.types import Sample


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """Rows of one training step, column by column."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[list[float]] | None
    """Log-probabilities of the sampler; None if it gave none."""
    env_mask: list[list[int]]
    """Mask of the tokens that are trained on: 1 for them, 0 for others."""
    rewards: list[float | None]
    """Rewards for TRL's own bookkeeping: the advantage of each row; None for a filler."""
    advantages: list[float]
    weights: list[float]
    """Weight of every token of each row."""

    def __len__(self) -> int:
        return len(self.advantages)

    def part(self, first: int, count: int) -> TrainingRows:
        """Return the share of the rows for one of several processes."""
        chosen = slice(first, first + count)
        cut: dict[str, Any] = {
            field.name: None if (column := getattr(self, field.name)) is None else column[chosen]
            for field in dataclasses.fields(self)
        }
        return dataclasses.replace(self, **cut)

    def output(self) -> dict[str, Any]:
        """Return the rows in the form of a rollout function's output for TRL."""
        return {
            "prompt_ids": self.prompt_ids,
            "completion_ids": self.completion_ids,
            "logprobs": self.logprobs,
            "env_mask": self.env_mask,
            "given": self.rewards,
        }


def rows_of(samples: Sequence[Sample], count: int, *, end: int) -> TrainingRows:
    """Return the rows of a training step.

    Args:
        samples: Training samples of the step.
        count: Number of rows that TRL wants.
        end: Id of the token that ends an answer.

    Raises:
        ValueError: If there are more samples than rows.
    """
    if len(samples) > count:
        raise ValueError(
            f"a training step has {len(samples)} samples, more than the {count} rows that TRL takes"
        )
    fillers = count - len(samples)
    told = [sample.logprobs for sample in samples]
    logprobs: list[list[float]] | None = None
    # TRL takes them of all rows or of none.
    if samples and all(each is not None for each in told):
        logprobs = [list(each or ()) for each in told] + [[0.0]] * fillers
    return TrainingRows(
        [list(sample.prompt_ids) for sample in samples] + [[end]] * fillers,
        [list(sample.ids) for sample in samples] + [[end]] * fillers,
        logprobs,
        [[1] * len(sample.ids) for sample in samples] + [[0]] * fillers,
        [*(sample.advantage for sample in samples), *([None] * fillers)],
        [*(sample.advantage for sample in samples), *([0.0] * fillers)],
        [*(sample.weight for sample in samples), *([0.0] * fillers)],
    )
