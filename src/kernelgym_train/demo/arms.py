"""The arms of a demonstration: learning from rewards, and comparisons.

Contract: every arm begins with the same warm-started model, sees the same practice problems and
returns what samples with the trained one. They differ in one thing from ``main``, which learns from
rewards:

- ``shuffled``: every step's advantages are dealt anew among its samples;
- ``evidence_off``: the judge asks for no evidence that a custom kernel did the work;
- ``rejection_sft``: as many episodes are played, by the warm-started model throughout, and what was
  judged right is fitted;
- ``clean_sft``: as many right answers to the same problems as ``main`` plays episodes are fitted:
  a ceiling, since nobody knows them in practice.

Evaluation is not theirs: it is under the ruleset ``strict`` for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator

from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.episodes.playing import history_budget
from kernelgym.errors import UnknownName
from kernelgym.prompts.observer import Observer
from kernelgym.rulesets import Ruleset
from kernelgym.types import Evaluator
from kernelgym_train.credit.credit import counts
from kernelgym_train.demo.corpus import Example, right_answers
from kernelgym_train.demo.heldout import policy_of
from kernelgym_train.demo.learning import RULES, dialogue_observer, learn
from kernelgym_train.demo.stages import Prepared, config_of
from kernelgym_train.demo.warmstart import fit
from kernelgym_train.launch.assembly import episode_rules
from kernelgym_train.models import load_model, load_tokenizer
from kernelgym_train.rollout.huggingface_policy import SamplingRule
from kernelgym_train.rollout.play import play, tasks_of
from kernelgym_train.rollout.sampling import ProblemSampler
from kernelgym_train.run.runlog import Watcher
from kernelgym_train.run.training import PolicyFor
from kernelgym_train.types import Rollout

ARMS = ("main", "shuffled", "rejection_sft", "clean_sft", "evidence_off")
"""By name; see above."""
WITHOUT_EVIDENCE = dataclasses.replace(
    RULES, name="strict-without-evidence", require_custom_kernel=False
)
"""The rules that the arm ``evidence_off`` is rewarded by."""


def rules_of(arm: str) -> Ruleset:
    """Return the rules that an arm is rewarded by.

    Raises:
        UnknownName: If there is no such arm.
    """
    if arm not in ARMS:
        raise UnknownName("arm", arm, ARMS)
    return WITHOUT_EVIDENCE if arm == "evidence_off" else RULES


def run_arm(
    arm: str,
    prepared: Prepared,
    judge: Evaluator,
    closing: contextlib.ExitStack,
    watchers: Iterable[Watcher] = (),
    *,
    name: str = "",
) -> PolicyFor:
    """Train the warm-started model in an arm; return what samples.

    Args:
        arm: A name from `ARMS`.
        prepared: Where it begins; a run's folder is made there.
        judge: Judges by `rules_of` the arm.
        closing: Releases the model; until then it can be sampled.
        watchers: Are told of every step, in the arms that have steps.
        name: Of the run's folder; the arm's if empty.

    Raises:
        UnknownName: If there is no such arm.
        UsageError: If the run's folder exists.
    """
    rules_of(arm)
    if arm in ("rejection_sft", "clean_sft"):
        return _fitted(arm, prepared, judge)
    config = config_of(prepared, name or arm)
    shuffled = arm == "shuffled"
    model = learn(config, prepared.practice, judge, watchers=watchers, shuffled=shuffled)
    closing.callback(model.close)
    return model.policy


def worth_fitting(
    rollouts: Iterable[Rollout], prompts: Observer, rules: EpisodeConfig
) -> Iterator[Example]:
    """Yield the right answers of episodes, with what was read before them.

    Args:
        rollouts: What was played.
        prompts: The observer they were played with.
        rules: The rules they were played by.
    """
    for rollout in rollouts:
        if not counts(rollout):
            continue
        played = rollout.trajectory
        for place, turn in enumerate(played.turns):
            if turn.verdict.correct:
                budget = history_budget(played.problem, prompts, rules)
                read = prompts.observe(played.problem, played.turns[:place], budget)
                status = turn.verdict.status
                yield Example(played.problem, read, turn.action, "right", status)


def _fitted(arm: str, prepared: Prepared, judge: Evaluator) -> PolicyFor:
    """Return what samples with the warm-started model after fitting right answers."""
    plan, config = prepared.plan, config_of(prepared, arm)
    sampling = config.sampling
    model, tokenizer = load_model(config.model), load_tokenizer(config.model)
    episodes = plan.steps * sampling.problems_per_step * sampling.group_size
    if arm == "clean_sft":
        each = -(-episodes // len(prepared.practice))
        examples = right_answers(prepared.practice, prepared.seed, each)[:episodes]
    else:
        observer = dialogue_observer(config, judge, tokenizer)
        rules, seed = episode_rules(config), f"rejection/{prepared.seed}"
        sampler = ProblemSampler(prepared.practice, config.run.seed, config.curriculum)
        policy = policy_of(model, tokenizer, plan.batch)(SamplingRule(plan.max_new_tokens))
        found: list[Example] = []
        for step in range(plan.steps):
            problems = sampler.draw(step, sampling.problems_per_step)
            tasks = tasks_of(step, problems, sampling.group_size)
            played = asyncio.run(play(tasks, policy, judge, observer, rules, seed=seed))
            sampler.record(played)
            found += worth_fitting(played, observer, rules)
        examples = tuple(found)
    if examples:
        fit(model, tokenizer, examples, plan.baseline_fit, seed=prepared.seed)
    return policy_of(model, tokenizer, plan.batch)
