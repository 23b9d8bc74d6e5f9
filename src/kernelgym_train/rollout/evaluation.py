"""How good a policy is on problems: pass@k, best of turns, fast_p, with intervals.

Contract: episodes are those of training (`kernelgym_train.rollout.play.play`). A problem counts
once, however often it is sampled: intervals are over problems
(`kernelgym.benchmark.numbers.intervals`). Episodes that do not count
(`kernelgym_train.credit.credit.counts`) are in no rate; ``infra/fail_rate`` is their share. A
kernel that is the fastest of several is measured again before its speed counts, since the best of
several measurements flatters; the second one stands.

- ``pass@k``: k first answers, one of them correct;
- ``pass@k_within``: k episodes, one of their turns correct;
- ``fast_p``: episodes whose best turn is correct and more than p times as fast as the reference.

It trains nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelgym import Evaluator, UsageError
from kernelgym.benchmark.numbers.metrics import pass_metrics, speed_metrics
from kernelgym.benchmark.numbers.outcomes import by_problem, measured_again, outcome_of
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.observer import Observer
from kernelgym.types import Problem
from kernelgym_train.credit.credit import counts
from kernelgym_train.metrics.step_metrics import rollout_metrics
from kernelgym_train.rollout.play import BatchPolicy, Policy, play, tasks_of
from kernelgym_train.types import Rollout


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation came to."""

    metrics: dict[str, float]
    rollouts: tuple[Rollout, ...]


async def play_and_score(
    policy: Policy | BatchPolicy,
    problems: Sequence[Problem],
    evaluator: Evaluator,
    observer: Observer,
    rules: EpisodeConfig | None = None,
    *,
    samples: int = 4,
    pass_at: Sequence[int] = (1, 4),
    seed: int | str = 0,
    step: int = 0,
    again: Evaluator | None = None,
    name: str = "eval",
    at_once: int | None = None,
) -> Evaluation:
    """Play problems and return how it went.

    Args:
        policy: Gives the answers.
        problems: What is played.
        evaluator: Judges them.
        observer: What the policy reads.
        rules: How episodes are scored and end.
        samples: Episodes of each problem.
        pass_at: Values of k.
        seed: Of the sampling.
        step: Stands in the keys.
        again: Measures the fastest kernels a second time; must not remember the first. None to
            believe the first measurement.
        name: First part of the metrics' names.
        at_once: Most episodes that are played at the same time; None for all.

    Raises:
        UsageError: If an argument makes no sense.
    """
    if not problems:
        raise UsageError("there is no problem to evaluate on")
    if samples < 1 or not all(1 <= k <= samples for k in pass_at):
        raise UsageError(f"pass@k needs 1 <= k <= samples, got {list(pass_at)} of {samples}")
    tasks = tasks_of(step, problems, samples)
    rollouts = await play(
        tasks, policy, evaluator, observer, rules, seed=f"{name}/{seed}", at_once=at_once
    )
    return score_rollouts(rollouts, pass_at=pass_at, again=again, name=name)


def score_rollouts(
    rollouts: Iterable[Rollout],
    *,
    pass_at: Sequence[int] = (1,),
    again: Evaluator | None = None,
    name: str = "eval",
) -> Evaluation:
    """Return what episodes came to; see `play_and_score`."""
    rollouts = tuple(rollouts)
    played = [rollout.trajectory for rollout in rollouts if counts(rollout)]
    outcomes = [outcome_of(each) for each in played]
    metrics = {
        f"{name}/{key}": value
        for key, value in rollout_metrics(rollouts).items()
        if not key.startswith(("batch/", "advantage/"))
    }
    metrics[f"{name}/problems"] = float(len(by_problem(outcomes)))
    metrics |= pass_metrics(name, outcomes, pass_at)
    for level in sorted({outcome.level for outcome in outcomes}):
        some = [outcome for outcome in outcomes if outcome.level == level]
        metrics |= pass_metrics(f"{name}/level_{level}", some, pass_at, intervals=False)
    best = [measured_again(each, again) for each in played]
    metrics |= speed_metrics(name, best)
    return Evaluation(metrics, rollouts)
