"""Playing held-out problems with a model: sampled and greedy, scored table by table.

Contract: the same seed, model and verdicts give the same scores. The loop, the observer and the
rules are those of training; the model is asked as it is, trained or not, adapter or not, on the
device it is on. Nothing of it is changed, and the judge is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym.prompts.observer import Observer
from kernelgym.types import Evaluator, Problem
from kernelgym_train.demo.scores import PASS_AT, Scores, scores_of
from kernelgym_train.rollout.play import EpisodeRules, play, tasks_of
from kernelgym_train.rollout.policies import HFPolicy, Sampling
from kernelgym_train.types import Rollout

__all__ = ["HeldOut", "evaluate_model"]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One table's scores, and the episodes they are of."""

    scores: Scores
    sampled: tuple[Rollout, ...]
    greedy: tuple[Rollout, ...]


def evaluate_model(
    model: Any,
    tokenizer: Any,
    tables: Mapping[str, Sequence[Problem]],
    judge: Evaluator,
    observer: Observer,
    rules: EpisodeRules,
    *,
    samples: int = 16,
    max_new_tokens: int = 75,
    batch: int = 128,
    seed: int | str = 0,
    greedy: bool = True,
    pass_at: Sequence[int] = PASS_AT,
) -> dict[str, HeldOut]:
    """Play every problem of every table and return what came of it, by table.

    Args:
        model: What is evaluated.
        tokenizer: Its tokenizer.
        tables: Problems by the table's name; all are played together.
        judge: Judges the answers.
        observer: What the model reads, and how many turns it has.
        rules: How episodes end and what feedback tells.
        samples: Sampled episodes of each problem.
        max_new_tokens: Most tokens of an answer.
        batch: Most answers of one generation.
        seed: Of the sampling.
        greedy: Play one greedy episode of each problem, too.
        pass_at: Values of k.
    """
    problems = [problem for table in tables.values() for problem in table]
    drawn = _played(
        *(model, tokenizer, problems, judge, observer, rules),
        samples,
        Sampling(max_new_tokens),
        batch,
        f"heldout/{seed}",
    )
    single: list[Rollout] = []
    if greedy:
        likeliest = Sampling(max_new_tokens, temperature=0.0)
        single = _played(
            *(model, tokenizer, problems, judge, observer, rules),
            *(1, likeliest, batch, f"greedy/{seed}"),
        )
    found: dict[str, HeldOut] = {}
    first = 0
    for name, table in tables.items():
        places = range(first, first + len(table))
        first += len(table)
        mine = tuple(rollout for rollout in drawn if rollout.key.problem in places)
        also = tuple(rollout for rollout in single if rollout.key.problem in places)
        found[name] = HeldOut(scores_of(mine, also, pass_at=pass_at), mine, also)
    return found


def _played(
    model: Any,
    tokenizer: Any,
    problems: Sequence[Problem],
    judge: Evaluator,
    observer: Observer,
    rules: EpisodeRules,
    samples: int,
    sampling: Sampling,
    batch: int,
    seed: str,
) -> list[Rollout]:
    policy = HFPolicy(model, tokenizer, sampling, batch=batch)
    tasks = tasks_of(0, problems, samples)
    return asyncio.run(play(tasks, policy, judge, observer, rules, seed=seed))
