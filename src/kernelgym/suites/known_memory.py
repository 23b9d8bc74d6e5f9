"""Memory that judging a problem takes, known without running anything.

KernelBench's sizes are in the shipped table, and those of a Synthetic problem follow from its id.
A kernel spec's problem says its own. Pretrained weights that are on this machine
count as well. Of other problems, such as those of a folder, nothing is known
here; the judge looks at their inputs before it runs a kernel. Sizes are those at fp32, and count at
lower precisions too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kernelgym.errors import ProblemError
from kernelgym.judging_memory import in_gigabytes, judging_bytes
from kernelgym.pretrained import judged_bytes
from kernelgym.suites.kernelbench_facts import fact
from kernelgym.types import Problem

_OF_A_SPEC = re.compile(
    r"# .* generated from a kernel spec\.\n"
    r"# Bytes of one call: (\d+) of inputs, (\d+) of outputs\.\n"
)


def needed_bytes(problem: Problem) -> int | None:
    """Return the number of bytes that judging a kernel of a problem takes; None if unknown."""
    if problem.suite == "Synthetic":
        from kernelgym.suites.synthetic.source import sizes_of

        found = sizes_of(problem.id)
        return None if found is None else judging_bytes(*found)
    if match := _OF_A_SPEC.match(problem.source):
        return judging_bytes(int(match[1]), int(match[2]))
    entry, weights = fact(problem.id, problem.name), judged_bytes(problem)
    if entry is None or entry.input_bytes is None:
        return judging_bytes(0, 0, weights) if weights else None
    return judging_bytes(
        entry.input_bytes, entry.output_bytes or 0, weights or entry.param_bytes or 0
    )


def fitting(problems: Iterable[Problem], budget: int | None) -> tuple[Problem, ...]:
    """Return the problems that are not known to exceed a memory budget; all if it is None."""
    if budget is None:
        return tuple(problems)
    return tuple(p for p in problems if (needed_bytes(p) or 0) <= budget)


def check_fits(problem: Problem, budget: int | None, device: str) -> None:
    """Refuse a problem that is known to exceed a budget.

    Args:
        problem: The problem.
        budget: Largest number of bytes that judging a kernel may take; None for no limit.
        device: Device that the message names.

    Raises:
        ProblemError: If it exceeds the budget.
    """
    needed = needed_bytes(problem)
    if needed is not None and budget is not None and needed > budget:
        raise ProblemError(too_large(problem.id, needed, budget, device))


def too_large(problem_id: str, needed: int, budget: int, device: str) -> str:
    """Return the sentence that refuses a problem for its memory."""
    small = problem_id.startswith("KernelBench/") and "@" not in problem_id
    return (
        f"judging problem {problem_id!r} takes at least {in_gigabytes(needed)} ({needed} bytes), "
        f"and the memory budget on {device!r} is {in_gigabytes(budget)} ({budget} bytes); give a "
        "larger budget (memory_bytes=, --memory or judge.memory_bytes)"
        f"{', take small sizes (sizes=, --sizes small)' if small else ', a smaller problem'} or "
        "another device"
    )
