"""Verdicts with a time, on a host that other tests share."""

from __future__ import annotations

from kernelgym.types import Evaluator, Kernel, Problem, Verdict

_ATTEMPTS = 10


def timed_verdict(evaluator: Evaluator, problem: Problem, kernel: Kernel) -> Verdict:
    """Judge a kernel until it is timed, since a busy host may leave it untimed; return the last."""
    verdict = evaluator.evaluate(problem, kernel)
    for _ in range(_ATTEMPTS):
        if verdict.timed or not verdict.correct:
            break
        verdict = evaluator.evaluate(problem, kernel)
    return verdict
