"""The arms of the learning benchmarks: learning from rewards, and comparisons.

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
import random
from collections.abc import Iterable, Iterator, Sequence

from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.episodes.playing import history_budget
from kernelgym.errors import UnknownName
from kernelgym.prompts.observer import Observer
from kernelgym.prompts.short import question
from kernelgym.rulesets import Ruleset
from kernelgym.suites.synthetic import respelled, solve
from kernelgym.types import Evaluator, Problem, Status
from kernelgym_train.credit.credit import counts
from kernelgym_train.demo.corpus import MAX_LINES, Example
from kernelgym_train.demo.dialogue import answer_of, line_count
from kernelgym_train.demo.heldout import policy_of
from kernelgym_train.demo.learning import RULES, dialogue_observer, learn
from kernelgym_train.demo.stages import Prepared, config_of
from kernelgym_train.demo.warmstart import FitRule, fit
from kernelgym_train.launch.assembly import episode_rules
from kernelgym_train.models import load_model, load_tokenizer
from kernelgym_train.rollout.huggingface_policy import SamplingRule
from kernelgym_train.rollout.play import play, tasks_of
from kernelgym_train.rollout.sampling import ProblemSampler
from kernelgym_train.run.steps import Played, Steps, TrainingStep
from kernelgym_train.run.training import PolicyFor
from kernelgym_train.types import Rollout

ARMS = ("main", "shuffled", "rejection_sft", "clean_sft", "evidence_off")
"""By name; see above."""
WITHOUT_EVIDENCE = dataclasses.replace(
    RULES, name="strict-without-evidence", require_custom_kernel=False
)
"""The rules that the arm ``evidence_off`` is rewarded by."""
_FIT = FitRule(epochs=3, batch_tokens=1536, learning_rate=1e-3)
_STYLES = 48


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
    name: str = "",
) -> PolicyFor:
    """Train the warm-started model in an arm; return what samples.

    Args:
        arm: A name from `ARMS`.
        prepared: Where it begins; a run's folder is made there.
        judge: Judges by `rules_of` the arm.
        closing: Releases the model; until then it can be sampled.
        name: Of the run's folder; the arm's if empty.

    Raises:
        UnknownName: If there is no such arm.
        UsageError: If the run's folder exists.
    """
    rules_of(arm)
    if arm in ("rejection_sft", "clean_sft"):
        return _fitted(arm, prepared, judge)
    config = config_of(prepared, name or arm)
    steps = ShuffledSteps if arm == "shuffled" else Steps
    model = learn(config, prepared.practice, judge, steps=steps)
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
        fit(model, tokenizer, examples, _FIT, seed=prepared.seed)
    return policy_of(model, tokenizer, plan.batch)


def right_answers(
    problems: Sequence[Problem], seed: int = 0, per_problem: int = 6
) -> tuple[Example, ...]:
    """Return first-turn answers that are all right: a clean corpus."""
    rng = random.Random(f"demo/right/{seed}")
    found = []
    for problem in problems:
        sources = {solve(problem, style_seed=style).source for style in range(_STYLES)}
        short = sorted(each for each in sources if line_count(each) <= MAX_LINES)
        for _ in range(per_problem if short else 0):
            read = question(respelled(problem, rng.randrange(1 << 30)))
            answer = answer_of(rng.choice(short))
            found.append(Example(problem, read, answer, "right", Status.CORRECT))
    return tuple(found)


class ShuffledSteps(Steps):
    """Steps whose advantages are dealt anew among the samples: the control of a demonstration."""

    def write_down(self, step: int, played: Played) -> TrainingStep:
        """Write down a step; see `kernelgym_train.run.steps.Steps.write_down`."""
        taken = super().write_down(step, played)
        samples = taken.credit.samples
        dealt = [sample.advantage for sample in samples]
        random.Random(f"shuffled/{self.seed}/{step}").shuffle(dealt)
        mixed = tuple(
            dataclasses.replace(sample, advantage=advantage)
            for sample, advantage in zip(samples, dealt, strict=True)
        )
        return dataclasses.replace(taken, credit=dataclasses.replace(taken.credit, samples=mixed))
