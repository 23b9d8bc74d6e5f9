"""The beginning of a search: its start is judged twice.

Then its compiler is asked which loops it made vectors of.

Contract: what was done before a kill is not done again; each verdict is an event. Nothing here is
charged to the budget of evaluations.
"""

from __future__ import annotations

import dataclasses
import math
import os
import secrets

from kernelgym import UsageError
from kernelgym.types import Evaluator
from kernelgym.verdict import HOST_BUSY
from kernelgym_train.mcgs.building import build_key, build_s, judge_s
from kernelgym_train.mcgs.controller import Controller
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.progress import Progress
from kernelgym_train.mcgs.proposing import Proposer
from kernelgym_train.mcgs.shapes import ShapesEvaluator
from kernelgym_train.mcgs.static_priors import REPORT_FLAG
from kernelgym_train.mcgs.task import Task
from kernelgym_train.mcgs.variant import builds_extension, launch_key

__all__ = ["ask_report", "judge_start", "why_times_differ"]

_QUIET = 0.10  # share by which two verdicts of one kernel may differ
_MOST_REPORT = 20_000  # characters of what a compiler says


def judge_start(
    controller: Controller,
    task: Task,
    evaluator: Evaluator,
    folder: SearchFolder,
    seconds: float,
) -> None:
    """Judge the start twice, unless that was done.

    That gives its speed, and how far times repeat.

    Args:
        controller: Of the search.
        task: What is searched.
        evaluator: Judges the start.
        folder: Is given the start and its verdict.
        seconds: Limit of the search; 0 for none.

    Raises:
        UsageError: If the start is not correct, or cannot be timed, or if no time is left.
    """
    progress = controller.progress
    for _ in range(progress.starts, 2):
        # A seed of its own: a cache would answer the second time, and show no noise.
        verdict = evaluator.evaluate(task.problem, task.start, seed=secrets.token_hex(16))
        if not verdict.correct or verdict.timing is None:
            what = verdict.status if not verdict.correct else "correct, and was not timed"
            raise UsageError(
                f"the start kernel is {what}: {verdict.message or 'no reason given'}; a search "
                "needs a correct kernel that the judge times"
            )
        folder.write_start(task.start, verdict)
        build = build_key(launch_key(progress.variants[progress.start]), verdict.build)
        fields = {"speedup": verdict.speedup, "build": build, "shown_wall_s": judge_s(verdict)}
        # A verdict tells no time of shapes that are kept secret; the limit of time has to know.
        fields["wall_s"] = judge_s(verdict)
        if isinstance(evaluator, ShapesEvaluator):
            fields["wall_s"] = round(evaluator.last_s, 3)
        busy = any(finding.code == HOST_BUSY for finding in verdict.findings)
        controller.record("start", fields | {"build_s": build_s(verdict), "host_busy": busy})
    if not progress.evaluations and controller.seconds_left < controller.reserve_s:
        raise UsageError(
            f"seconds={seconds:g} is too little: judging the "
            f"start took {controller.seconds:.0f} s, and comparing and checking the best takes "
            f"about {controller.reserve_s:.0f} s; give several times as much"
        )


def ask_report(
    controller: Controller, task: Task, evaluator: Evaluator, proposer: Proposer
) -> None:
    """Ask the start's compiler which loops it made vectors of.

    Takes one build, which is not charged, where the evaluator can build without judging and the
    proposer weighs moves by it.

    Args:
        controller: Of the search.
        task: What is searched.
        evaluator: Builds the start.
        proposer: Weighs the moves.
    """
    start = controller.progress.variants[controller.progress.start]
    build = getattr(evaluator, "build", None)
    takes = hasattr(proposer, "take_report") and builds_extension(task.start.language)
    if build is None or not takes or controller.progress.report is not None:
        return
    made = build(dataclasses.replace(start, flags=(*start.flags, REPORT_FLAG)).kernel())
    if made is not None:
        controller.record("report", {"log": made.log[:_MOST_REPORT]})


def why_times_differ(progress: Progress) -> str:
    """Return why times of the start differ by 10 %, or nothing."""
    noise, busy = math.expm1(progress.noise), progress.host_busy
    if noise <= _QUIET and not busy:
        return ""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    told = " and the judge says host_busy" if busy else ""
    return (
        f"two verdicts of the start differ by {noise:.0%}{told}, with a load of {load:.1f} on "
        f"{cores} cores"
    )
