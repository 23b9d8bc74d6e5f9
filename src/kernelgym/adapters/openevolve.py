"""`evaluate_for`: the evaluation function that OpenEvolve calls, with this judge.

OpenEvolve reads a file that defines ``evaluate(program_path)``::

    from kernelgym.adapters.openevolve import evaluate_for

    evaluate = evaluate_for("Synthetic/L1/2", language="cpp")

Contract: a program is a kernel's module. Its metrics are the verdict's: ``combined_score``, which
OpenEvolve maximises, is the lower end of the speedup's 95 % interval, and 0 for a kernel that is
not correct or whose time the judge withholds. Where the device does not time the language, a
correct kernel scores 1. The artifacts are the status and the feedback that a model reads. A failure
of the judge is an exception, so that it is never a kernel's score.

OpenEvolve evaluates in several processes. Each makes its own evaluator, when it first needs one.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelgym.episodes.episode import refusal, with_findings
from kernelgym.errors import KernelgymError
from kernelgym.feedback import feedback
from kernelgym.languages import check_language
from kernelgym.suites import get_problem
from kernelgym.types import Evaluator, Kernel, Problem, Reply, Verdict


class VerdictUnavailable(KernelgymError):
    """The judge failed on a program, through no fault of the program."""


def evaluate_for(
    problem: Problem | str,
    *,
    language: str = "triton",
    device: str = "cpu",
    ruleset: str = "strict",
    make: Callable[[], Evaluator] | None = None,
) -> Callable[[str], Any]:
    """Return an OpenEvolve evaluator: a function from a program's path to its metrics.

    Args:
        problem: The problem, its id or its file.
        language: Language of the programs.
        device: Device that judges them.
        ruleset: Rules of the verdicts.
        make: Function that returns an evaluator, in place of one on this machine.

    Returns:
        A function that returns OpenEvolve's ``EvaluationResult``. It raises `VerdictUnavailable` if
        the judge failed.

    Raises:
        UnknownName: If there is no such language.
        UnsupportedLanguage: If the device does not run it.
        UsageError: If there is no such problem.
    """
    found = problem if isinstance(problem, Problem) else get_problem(problem)
    is_timed = check_language(language, device).is_timed(device)

    @functools.cache
    def evaluator() -> Evaluator:
        if make is not None:
            made = make()
        else:
            from kernelgym.judge import LocalEvaluator

            made = LocalEvaluator(device, ruleset)
        atexit.register(made.close)
        return made

    def evaluate(program_path: str) -> Any:
        from openevolve.evaluation_result import EvaluationResult

        kernel = Kernel(Path(program_path).read_text("utf-8"), language)
        verdict = _judged(evaluator(), found, kernel)
        if not verdict.valid:
            raise VerdictUnavailable(f"the judge failed: {verdict.message}")
        told = feedback(verdict, Reply(kernel))
        return EvaluationResult(
            metrics=_metrics(verdict, is_timed and evaluator().capabilities.timed),
            artifacts={"status": verdict.status.value, "feedback": str(told)},
        )

    return evaluate


def _judged(evaluator: Evaluator, problem: Problem, kernel: Kernel) -> Verdict:
    """Return the verdict on a kernel, which is not run if its source is refused."""
    refused = refusal(problem, kernel, evaluator.capabilities.ruleset)
    return evaluator.evaluate(problem, kernel) if refused is None else with_findings(refused, ())


def _metrics(verdict: Verdict, is_timed: bool) -> dict[str, float]:
    """Return OpenEvolve's metrics of a verdict, each higher for better kernels."""
    untimed = 0.0 if is_timed else 1.0
    score = verdict.speedup_low if verdict.timed else untimed
    return {
        "combined_score": score if verdict.correct else 0.0,
        "correct": float(verdict.correct),
        "compiled": float(verdict.compiled),
        "speedup": verdict.speedup,
        "speedup_low": verdict.speedup_low,
    }
