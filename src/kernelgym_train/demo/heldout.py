"""Plays held-out problems by a policy, and scores the episodes table by table.

Contract: the same seed, policy and verdicts give the same scores. Turn loop, observer and rules are
those of training; answers come from a backend, or from a model in this process (`policy_of`). The
policy is not changed, and the caller owns the judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.observer import Observer
from kernelgym.types import Evaluator, Problem
from kernelgym_train.demo.scores import PASS_AT, Scores, scores_of
from kernelgym_train.rollout.huggingface_policy import HFPolicy, SamplingRule
from kernelgym_train.rollout.play import play, tasks_of
from kernelgym_train.run.training import PolicyFor
from kernelgym_train.types import Rollout


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Scores of one table of held-out problems, with the episodes that were scored."""

    scores: Scores
    sampled: tuple[Rollout, ...]
    greedy: tuple[Rollout, ...]


def policy_of(model: Any, tokenizer: Any, batch: int = 128) -> PolicyFor:
    """Return a policy that samples with a model of transformers in this process.

    Args:
        model: The model, with or without an adapter.
        tokenizer: Tokenizer of the model.
        batch: Largest number of answers that are generated at the same time.
    """
    return lambda sampling: HFPolicy(model, tokenizer, sampling, batch=batch)


def evaluate_policy(
    policy: PolicyFor,
    tables: Mapping[str, Sequence[Problem]],
    judge: Evaluator,
    observer: Observer,
    rules: EpisodeConfig,
    *,
    samples: int = 16,
    max_new_tokens: int = 75,
    seed: int | str = 0,
    greedy: bool = True,
    pass_at: Sequence[int] = PASS_AT,
) -> dict[str, HeldOut]:
    """Play every problem of every table, and return scores and episodes by table.

    Args:
        policy: Policy to evaluate.
        tables: Problems by the table's name; all are played together.
        judge: Evaluator of the answers' kernels.
        observer: Observer that writes the prompts; it sets the number of turns.
        rules: Rules by which episodes end and feedback is given.
        samples: Number of sampled episodes of each problem.
        max_new_tokens: Largest number of tokens of an answer.
        seed: Seed of the sampling.
        greedy: Whether one greedy episode of each problem is played as well.
        pass_at: Values of k for pass@k.
    """
    problems = [problem for table in tables.values() for problem in table]

    async def played(sampling: SamplingRule, samples: int, name: str) -> list[Rollout]:
        tasks = tasks_of(0, problems, samples)
        asked = policy(sampling)
        return await play(tasks, asked, judge, observer, rules, seed=f"{name}/{seed}")

    async def both() -> tuple[list[Rollout], list[Rollout]]:
        drawn = await played(SamplingRule(max_new_tokens), samples, "heldout")
        if not greedy:
            return drawn, []
        return drawn, await played(SamplingRule(max_new_tokens, temperature=0.0), 1, "greedy")

    drawn, single = asyncio.run(both())
    found: dict[str, HeldOut] = {}
    first = 0
    for name, table in tables.items():
        places = range(first, first + len(table))
        first += len(table)
        mine = tuple(rollout for rollout in drawn if rollout.key.problem in places)
        also = tuple(rollout for rollout in single if rollout.key.problem in places)
        found[name] = HeldOut(scores_of(mine, also, pass_at=pass_at), mine, also)
    return found
