"""Rows that a Tinker service learns from: samples, shifted by one.

Contract: a row of an answer of n tokens to a prompt of m has m + n - 1 positions. Position i reads
token i and predicts token i + 1; log-probabilities and advantages are 0 where the token predicted
is the prompt's, so that nothing is learned from it. The advantage of each sampled token is the
sample's, less a penalty of the token's own if there is one, times the weight: the service sums
losses over tokens and rows, which makes its loss ``-sum(weight * advantage * logp)`` as
`kernelgym_train.credit.credit` has it.

Pure: neither the SDK nor a tensor is needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelgym_train.types import Sample


@dataclass(frozen=True, slots=True)
class DatumRow:
    """Training sample in the form of a Tinker service; all fields have the same length."""

    tokens: tuple[int, ...]
    """Token ids that the model reads."""
    targets: tuple[int, ...]
    """Token ids that the model predicts: each is the one after that in `tokens`."""
    logprobs: tuple[float, ...]
    """Log-probability of each target under the sampler, in nats; 0 on the prompt."""
    advantages: tuple[float, ...]
    """Advantage without penalty, times weight; 0 on the prompt."""
    answered: tuple[float, ...]
    """Mask of the answer: 1 on the answer, 0 on the prompt, for ratios of whole answers."""


def datum_row(sample: Sample, penalties: Sequence[float] = ()) -> DatumRow:
    """Return the row of a datum of Tinker for a training sample.

    Args:
        sample: The sample.
        penalties: Amount that is subtracted from the advantage of each token; empty for none.

    Raises:
        ValueError: If it has no prompt, no answer or no log-probabilities of the sampler, or
            penalties are not one a token.
    """
    if not sample.prompt_ids or not sample.ids:
        raise ValueError(f"sample {tuple(sample.key)} has no prompt or no answer")
    if sample.logprobs is None:
        raise ValueError(f"sample {tuple(sample.key)} has no log-probabilities of its sampler")
    whole = (*sample.prompt_ids, *sample.ids)
    before = (0.0,) * (len(sample.prompt_ids) - 1)
    worth = [sample.advantage] * len(sample.ids)
    if penalties:
        worth = [value - less for value, less in zip(worth, penalties, strict=True)]
    return DatumRow(
        whole[:-1],
        whole[1:],
        (*before, *sample.logprobs),
        (*before, *(value * sample.weight for value in worth)),
        (*before, *(1.0 for _ in sample.ids)),
    )


def updates_of(
    samples: Sequence[Sample], updates: int, *, penalised: bool = False
) -> list[tuple[Sample, ...]]:
    """Return the samples of each optimiser update, none of them twice.

    Samples without an advantage teach nothing and are left out; so are updates without samples.

    Args:
        samples: Samples of a step.
        updates: Number of updates.
        penalised: Whether tokens have penalties, which teach without an advantage, too.
    """
    taught = [
        sample
        for sample in samples
        if sample.ids and (sample.weight if penalised else sample.advantage * sample.weight)
    ]
    bounds = [len(taught) * number // updates for number in range(updates + 1)]
    parts = [tuple(taught[a:b]) for a, b in itertools.pairwise(bounds)]
    return [part for part in parts if part]


def logprob_gap(
    rows: Iterable[DatumRow], learner: Iterable[Sequence[float]], prompts: Iterable[int]
) -> tuple[float, float]:
    """Return the mean and largest difference between the log-probabilities of learner and sampler.

    Args:
        rows: Rows that were learned from.
        learner: The learner's log-probabilities of each row's targets.
        prompts: Tokens of each row's prompt.
    """
    gaps = [
        abs(told - said)
        for row, found, prompt in zip(rows, learner, prompts, strict=True)
        for told, said in zip(found[prompt - 1 :], row.logprobs[prompt - 1 :], strict=True)
    ]
    return (sum(gaps) / len(gaps), max(gaps)) if gaps else (0.0, 0.0)
