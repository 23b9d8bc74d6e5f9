"""Evaluation of a policy on problems: pass@k, best of turns, fast_p, with intervals.

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

from kernelgym import Evaluator
from kernelgym.benchmark.numbers.metrics import pass_metrics, speed_metrics
from kernelgym.benchmark.numbers.outcomes import by_problem, measured_again, outcome_of
from kernelgym_train.credit.credit import counts
from kernelgym_train.metrics.step_metrics import rollout_metrics
from kernelgym_train.types import Rollout


def score_rollouts(
    rollouts: Iterable[Rollout],
    *,
    pass_at: Sequence[int] = (1,),
    again: Evaluator | None = None,
    name: str = "eval",
) -> dict[str, float]:
    """Return rates, speeds and shares of episodes under names such as ``eval/pass@1``.

    Args:
        rollouts: Sampled episodes of problems.
        pass_at: Values of k for pass@k.
        again: Evaluator that measures the best turn of each episode once more; None for the first
            measurement.
        name: First part of the names.
    """
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
    return metrics
