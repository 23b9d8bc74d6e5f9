"""Rollouts of any outcome, made without a policy or a judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kernelgym.testing import SAMPLE_PROBLEM, verdict
from kernelgym.types import Ended, Problem, Trajectory, Verdict
from kernelgym_train.types import Completion, Key, Rollout
from support.strategies import as_turn


def rollout(
    scores: Sequence[float],
    *,
    step: int = 0,
    group: int = 0,
    number: int = 0,
    lengths: Sequence[int] | None = None,
    verdicts: Sequence[Verdict] | None = None,
    problem: Problem = SAMPLE_PROBLEM,
    ended: Ended = "budget",
    horizon: int | None = None,
) -> Rollout:
    """Return a rollout whose turns scored this; each of 3 tokens and wrong, if not said."""
    lengths = [3] * len(scores) if lengths is None else lengths
    verdicts = [verdict("wrong")] * len(scores) if verdicts is None else verdicts
    turns = tuple(
        as_turn(index, found, score)
        for index, (found, score) in enumerate(zip(verdicts, scores, strict=True))
    )
    # Ids that tell which turn of which trajectory they are of.
    completions = tuple(
        Completion("", (7,), (100 * number + turn,) * length, None, "stop", step)
        for turn, length in enumerate(lengths)
    )
    played = Trajectory(problem, turns, ended, horizon or max(1, len(scores)))
    return Rollout(Key(step, group, number), played, completions)


def problems(family: str, level: int, count: int, start: int = 0) -> list[Problem]:
    """Return so many different problems of one bucket."""
    made = []
    for number in range(start, start + count):
        name = f"{family}{level}_{number}"
        source = f"{SAMPLE_PROBLEM.source}\n# {name}\n"
        made.append(
            dataclasses.replace(
                SAMPLE_PROBLEM,
                **{"id": f"Test/{name}", "suite": "Test", "name": name, "level": level},
                source=source,
                family=family,
            )
        )
    return made
