"""Grades one kernel for an exported task: the program that the task's own test script runs.

    python -m kernelgym.workspace.grading TASK_TESTS KERNEL OUT

Contract: ``OUT/reward.json`` is written if the kernel was judged, or is missing or too long, which
scores 0. If the judge failed, no reward is written and the exit code is 1, so that a harness sees a
failed verifier and not a kernel that scores 0. The score is a `ToolSession`'s of its submission.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from kernelgym.errors import KernelgymError, UsageError
from kernelgym.evaluators.remote import RemoteEvaluator
from kernelgym.languages import check_language
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.serve.refusal import Refusal
from kernelgym.types import Evaluator, Problem
from kernelgym.workspace.session import ToolSession

EVALUATOR_VARIABLE = "KERNELGYM_EVALUATOR"
"""Environment variable with the address of a verdict service that judges in place of this machine.
"""
ABOUT_FILE = "task.json"
"""File beside the test script: problem, language, device and ruleset of the task."""
PROBLEM_FILE = "problem.py"
"""File beside the test script: the problem's source."""


def grade(tests: Path, kernel: Path, out: Path) -> dict[str, float]:
    """Judge a kernel, write the reward and the feedback, and return the reward.

    Args:
        tests: Folder of the task's test script.
        kernel: The kernel's file.
        out: Folder for ``reward.json``, ``feedback.txt`` and ``trajectory.jsonl``.

    Raises:
        UsageError: If the task's files do not fit together, or this version of kernelgym has no
            such ruleset.
        Refusal: If the judge failed.
    """
    out.mkdir(parents=True, exist_ok=True)
    about = json.loads((tests / ABOUT_FILE).read_text("utf-8"))
    problem = _problem(tests, about)
    rules = find_ruleset(about["ruleset"])
    try:
        source = kernel.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        return _rewarded(out, f"There is no kernel: {kernel} cannot be read ({error.strerror}).")
    timed = check_language(about["language"], about["device"]).is_timed(about["device"])
    with contextlib.closing(_evaluator(about["device"], rules, timed)) as evaluator:
        session = ToolSession(
            problem,
            evaluator,
            evaluator if timed else None,
            language=about["language"],
            budget=1,
            record=out / "trajectory.jsonl",
        )
        try:
            answer = asyncio.run(session.call("submit", source))
        except Refusal as refusal:
            if refusal.status != 413:
                raise
            return _rewarded(out, refusal.message)
    return _rewarded(
        out,
        answer.feedback,
        reward=answer.score or 0.0,
        correct=float(answer.correct),
        speedup=answer.speedup,
        speedup_low=answer.speedup_low,
    )


def _problem(tests: Path, about: dict[str, Any]) -> Problem:
    problem = Problem(**about["problem"], source=(tests / PROBLEM_FILE).read_text("utf-8"))
    if problem.digest != about["digest"]:
        raise UsageError(
            f"{tests / PROBLEM_FILE} has digest {problem.digest}, and the task {about['digest']}: "
            "export the task again"
        )
    return problem


def _evaluator(device: str, rules: Ruleset, timing: bool) -> Evaluator:
    if url := os.environ.get(EVALUATOR_VARIABLE):
        return RemoteEvaluator(url, ruleset=rules, timing=timing)
    from kernelgym.judge import LocalEvaluator

    return LocalEvaluator(device, rules, timing=timing)


def _rewarded(out: Path, feedback: str, **rewards: float) -> dict[str, float]:
    """Write the reward file, with 0 for values that are not given, and return the reward."""
    found = dict.fromkeys(("reward", "correct", "speedup", "speedup_low"), 0.0) | rewards
    (out / "feedback.txt").write_text(feedback + "\n", "utf-8")
    (out / "reward.json").write_text(json.dumps(found) + "\n", "utf-8")
    return found


def main(arguments: list[str]) -> int:
    """Grade a kernel and print its reward; return the exit code."""
    if len(arguments) != 3:
        print("usage: python -m kernelgym.workspace.grading TASK_TESTS KERNEL OUT", file=sys.stderr)
        return 2
    try:
        found = grade(*map(Path, arguments))
    except (KernelgymError, Refusal, OSError, ValueError, KeyError, TypeError) as error:
        print(f"no reward: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
