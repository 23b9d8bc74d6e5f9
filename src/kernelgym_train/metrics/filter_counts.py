"""Answers that each filter of a step lets through, and their entropy.

An answer passes a row of filters before a model learns from it. A filter that removes everything
makes no error and no alarm of its own: rewards stop differing, and nothing else shows. Contract:

- pure; every count is of answers (turns), refills included;
- a filter's ``seen`` are the answers that it had to decide on. A filter that saw none is left out:
  a run without timing has no timing filter;
- entropy is estimated from what the sampler told: the mean of ``-logp`` over tokens drawn from the
  whole distribution has the entropy as its expectation. ``raw`` is over all sampled tokens,
  ``masked`` over those that are learned from. A sampler that tells nothing gives no number.

It does not cover what a loss masks afterwards, such as tokens whose ratio it clips.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelgym.languages import LANGUAGES
from kernelgym.types import Status, Turn
from kernelgym_train.credit.credit import counts
from kernelgym_train.types import Rollout, Sample

FILTERS = ("invalid", "parsing", "policy", "evidence", "timing", "zero_variance")
"""Names of the filters, in the order in which an answer meets them. ``invalid``: its episode
counts, since neither the judge nor the policy failed. ``parsing``: a kernel can be read from it.
``policy``: screening refuses no kernel. ``evidence``: a kernel whose outputs are right did the work
itself. ``timing``: a correct kernel that the run times has a time. ``zero_variance``: the returns
of its group differ, so that it is learned from."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """Numbers of answers that reached and passed one filter of a training step."""

    seen: int
    """Number of answers that reached the filter."""
    passed: int
    """Number of answers that the filter let through."""


def filtered(
    rollouts: Iterable[Rollout], samples: Sequence[Sample], *, timing: bool = False
) -> dict[str, Filtered]:
    """Return the numbers of seen and passed answers of each filter, in the order of `FILTERS`.

    Args:
        rollouts: All that was played in the step.
        samples: Training samples of the step.
        timing: Whether the run times correct kernels of languages that can be timed.
    """
    rollouts = list(rollouts)
    turns = [turn for each in rollouts if counts(each) for turn in each.trajectory.turns]
    kernels = [turn for turn in turns if turn.reply.kernel is not None]
    allowed = [turn for turn in kernels if not _is_refused(turn, late=False)]
    right = [turn for turn in allowed if turn.verdict.correct or _is_refused(turn, late=True)]
    correct = [turn for turn in right if turn.verdict.correct]
    timeable = [turn for turn in correct if timing and _can_be_timed(turn)]
    stages = (
        (sum(len(each.trajectory.turns) for each in rollouts), len(turns)),
        (len(turns), len(kernels)),
        (len(kernels), len(allowed)),
        (len(right), len(correct)),
        (len(timeable), sum(turn.verdict.timed for turn in timeable)),
        (len(turns), len(samples)),
    )
    found = {name: Filtered(*stage) for name, stage in zip(FILTERS, stages, strict=True)}
    return {name: each for name, each in found.items() if each.seen}


def filter_metrics(found: dict[str, Filtered]) -> dict[str, float]:
    """Return the numbers of `filtered` as metrics."""
    return {
        f"filter/{name}_{what}": float(count)
        for name, each in found.items()
        for what, count in (("seen", each.seen), ("passed", each.passed))
    }


def entropy_metrics(rollouts: Iterable[Rollout], samples: Iterable[Sample]) -> dict[str, float]:
    """Return the estimated entropy per token before and after all filters."""
    answers = (answer for rollout in rollouts for answer in rollout.completions)
    raw = [value for answer in answers for value in answer.logprobs or ()]
    masked = [value for sample in samples for value in sample.logprobs or ()]
    told = {"entropy/raw": raw, "entropy/masked": masked}
    return {name: -math.fsum(values) / len(values) for name, values in told.items() if values}


def _is_refused(turn: Turn, *, late: bool) -> bool:
    """Return True if a kernel was rejected, by screening or after it ran."""
    found = turn.verdict
    ran = found.compiled and 0 < found.trials == found.trials_passed
    return found.status is Status.REJECTED and ran is late


def _can_be_timed(turn: Turn) -> bool:
    kernel = turn.reply.kernel
    language = LANGUAGES.get(kernel.language) if kernel is not None else None
    return language is not None and language.is_timed(turn.verdict.device)
