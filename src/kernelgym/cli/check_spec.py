"""``kernelgym check spec.json``: judge one kernel at every shape."""

from __future__ import annotations

import json

from kernelgym.cli import judging
from kernelgym.cli.console import print_text, print_verdict
from kernelgym.errors import UsageError
from kernelgym.judging_memory import memory_budget, parse_bytes
from kernelgym.rulesets import Ruleset
from kernelgym.suites.spec_checks import check_memory
from kernelgym.suites.spec_suite import SpecSuite
from kernelgym.types import Kernel

__all__ = ["judge_every_shape"]


def judge_every_shape(
    path: str,
    kernel_file: str,
    *,
    language: str,
    device: str,
    ruleset: Ruleset,
    timing: bool,
    memory: str,
    verdict_cache: str,
    as_json: bool,
) -> int:
    """Judge a kernel at each shape; returns the exit code.

    Args:
        path: The spec's file.
        kernel_file: The kernel's module; empty for the spec's own kernel.
        language: Language of that module; the spec's own kernel has the spec's.
        device: Where kernels run.
        ruleset: Rules to judge by; the spec's tolerances go before its own.
        timing: Whether to time the kernel.
        memory: Memory budget as text; empty for half of the device's.
        verdict_cache: Folder of kept verdicts; empty for none.
        as_json: Print one JSON object, a verdict by problem id, and nothing else.

    Returns:
        0 if all verdicts are correct, otherwise 1.

    Raises:
        UsageError: If the spec or the kernel cannot be used, or a shape exceeds the budget.
    """
    suite = SpecSuite(path)
    if kernel_file:
        kernel = Kernel(judging.read_text(kernel_file, "kernel file"), language)
    else:
        kernel = suite.kernel
    budget = memory_budget(parse_bytes(memory), device)
    try:
        check_memory(suite.spec, budget, device)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    judging.check_tools(kernel.language, device)
    problems = suite.problems()
    evaluator = judging.make_evaluator(device, suite.rules(ruleset), timing=timing, memory=memory)
    verdicts = {}
    try:
        evaluator = judging.with_cache(evaluator, verdict_cache)
        for problem in problems:
            verdict = verdicts[problem.id] = judging.judge(evaluator, problem, kernel)
            if not as_json:
                print_text(f"{problem.id}: {kernel.language} on {device}", "bold")
                reason = judging.untimed_reason(kernel.language, device, timing)
                print_verdict(verdict, untimed=reason)
    finally:
        evaluator.close()
    if as_json:
        print(json.dumps({name: verdict.to_dict() for name, verdict in verdicts.items()}))
    return 0 if all(verdict.correct for verdict in verdicts.values()) else 1
