"""Rollouts of the learning demonstration that are made up, by the verdicts of their turns."""

from __future__ import annotations

from collections.abc import Sequence

from kernelgym.answers.parsing import parse
from kernelgym.feedback import feedback
from kernelgym.testing import SAMPLE_PROBLEM, verdict
from kernelgym.types import Finding, Problem, Score, Severity, Status, Trajectory, Turn, Verdict
from kernelgym_train.types import Completion, Key, Rollout

ANSWER = "<KERNEL>\nclass ModelNew: pass\n</KERNEL>"
RIGHT = verdict(Status.CORRECT)
WRONG = verdict(Status.WRONG)
CHEAT = Verdict(
    Status.REJECTED,
    findings=(Finding("no_custom_kernel", "there is no kernel", Severity.HARD),),
    message="there is no kernel",
)


def turn(index: int, verdict: Verdict) -> Turn:
    reply = parse(ANSWER, "triton")
    return Turn(index, ANSWER, reply, verdict, feedback(verdict, reply), Score(0.0))


def rollout(
    number: int, verdicts: Sequence[Verdict], problem: str = "A", tokens: int = 3
) -> Rollout:
    asked = Problem(problem, "Tiny", 1, problem, SAMPLE_PROBLEM.source)
    turns = tuple(turn(index, each) for index, each in enumerate(verdicts))
    ended = "solved" if verdicts[-1].correct else "budget"
    played = Trajectory(asked, turns, ended, 2)  # type: ignore[arg-type]
    answer = Completion(ANSWER, (1,), (2,) * tokens, None, "stop", 0)
    return Rollout(Key(0, 0, number), played, (answer,) * len(turns))
