"""Held-out problems played by a policy and scored table by table.

Contract: the same seed, policy and verdicts give the same scores. The loop, the observer and the
rules are those of training; what samples is a backend's, or a model in this process (`policy_of`).
Nothing of it is changed, and the judge is the caller's.
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
from kernelgym_train.rollout.play import play, tasks_of
from kernelgym_train.rollout.policies import HFPolicy, SamplingRule
from kernelgym_train.run.training import PolicyFor
from kernelgym_train.types import Rollout


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One table's scores, and the episodes they are of."""

    scores: Scores
    sampled: tuple[Rollout, ...]
    greedy: tuple[Rollout, ...]


def policy_of(model: Any, tokenizer: Any, batch: int = 128) -> PolicyFor:
    """Return what samples with a model of transformers as it is.

    Args:
        model: Trained or not, with an adapter or without.
        tokenizer: Its tokenizer.
        batch: Most answers of one generation.
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
    """Play every problem of every table and return what came of it, by table.

    Args:
        policy: What is evaluated.
        tables: Problems by the table's name; all are played together.
        judge: Judges the answers.
        observer: What the model reads, and how many turns it has.
        rules: How episodes end and what feedback tells.
        samples: Sampled episodes of each problem.
        max_new_tokens: Most tokens of an answer.
        seed: Of the sampling.
        greedy: Play one greedy episode of each problem, too.
        pass_at: Values of k.
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
