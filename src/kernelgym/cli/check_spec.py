"""``kernelgym check spec.json``: judge one kernel at every shape."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kernelgym.cli import judging
from kernelgym.cli.console import print_text, print_verdict
from kernelgym.errors import UsageError
from kernelgym.judging_memory import memory_budget, parse_bytes
from kernelgym.rulesets import precise_rules
from kernelgym.suites.spec_checks import check_memory
from kernelgym.suites.spec_suite import SpecSuite
from kernelgym.types import Kernel

if TYPE_CHECKING:
    from kernelgym.cli.check import CheckCommand


def judge_every_shape(options: CheckCommand) -> int:
    """Judge a kernel at each shape of a kernel spec; return the exit code.

    The spec is the command's problem and the kernel its file; without a problem, the file is the
    spec and the spec's own kernel is judged. The spec's tolerances replace those of the ruleset.

    Returns:
        0 if all verdicts are correct, otherwise 1.

    Raises:
        UsageError: If the spec or the kernel cannot be used, or a shape exceeds the budget.
    """
    path, device, timing = options.problem or options.file, options.device, not options.no_timing
    suite = SpecSuite(path)
    kernel = suite.kernel
    if options.problem:
        kernel = Kernel(judging.read_text(options.file, "kernel file"), options.language)
    if not options.evaluator:  # a service has memory and tools of its own
        budget = memory_budget(parse_bytes(options.memory), device)
        try:
            check_memory(suite.spec, budget, device)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        judging.check_tools(kernel.language, device)
    problems = suite.problems()
    rules = suite.rules(precise_rules(options.ruleset, options.precision))
    verdicts = {}
    with judging.open_evaluator(
        device, rules, 1, timing, options.memory, options.verdict_cache, options.evaluator
    ) as evaluator:
        for problem in problems:
            verdict = verdicts[problem.id] = judging.judge(evaluator, problem, kernel)
            if not options.json:
                print_text(f"{problem.id}: {kernel.language} on {device}", "bold")
                reason = judging.untimed_reason(kernel.language, device, timing)
                print_verdict(verdict, untimed=reason)
    if options.json:
        print(json.dumps({name: verdict.to_dict() for name, verdict in verdicts.items()}))
    return 0 if all(verdict.correct for verdict in verdicts.values()) else 1
