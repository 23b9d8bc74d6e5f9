"""Whether a problem is known to be degenerate, without running anything.

Environments, ``kernelgym ls`` and evals choose their problems by this.

A result of ``kernelgym lint`` for the same ruleset and kind of device comes first. For KernelBench
the shipped table comes next, which was measured on KernelBench's inputs at its tolerances and holds
for any ruleset until a lint says otherwise. Two of its reasons are left out:

- ``identity`` under a ruleset that draws other kinds of inputs: there a ReLU is not an identity;
- what breaks only KernelBench's own harness (its casting of token ids to float), since the judge
  casts no integers.

Any other problem passes.

Nothing is computed here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from kernelgym.hygiene import Hygiene, read_kept
from kernelgym.rulesets import Ruleset
from kernelgym.suites.kernelbench_facts import degenerate, fact
from kernelgym.types import Problem

_OF_THE_TABLE = "by the shipped table, at KernelBench's tolerances"
_UNTESTABLE = ("partial_computation", "analytic")
"""Reasons that the table knows and no test finds: they depend on the slack of fixed tolerances."""


def known_hygiene(problem: Problem, rules: Ruleset, device: str = "cpu") -> Hygiene:
    """Return whether a problem is known to be degenerate, and why; an unknown one passes, untested.

    Args:
        problem: The problem.
        rules: The ruleset that it would be judged by.
        device: Device that would judge it.
    """
    from kernelgym.paths import hygiene_folder

    entry = fact(problem.id, problem.name)
    listed = _listed(problem, rules) if entry else ()
    kept = read_kept(hygiene_folder(), problem, rules, device)
    if kept is not None:
        if rules.tolerance == "fp64":
            return kept
        more = tuple(reason for reason in listed if reason in _UNTESTABLE)
        return dataclasses.replace(kept, reasons=kept.reasons + more)
    return Hygiene(
        problem.id,
        rules.label,
        rules.precision,
        device.partition(":")[0],
        listed,
        _OF_THE_TABLE if listed else "",
        tested=bool(entry and entry.tested),
    )


def passing(
    problems: Iterable[Problem], rules: Ruleset, device: str = "cpu"
) -> tuple[Problem, ...]:
    """Return the problems that are not known to be degenerate."""
    return tuple(p for p in problems if known_hygiene(p, rules, device).passes)


def _listed(problem: Problem, rules: Ruleset) -> tuple[str, ...]:
    listed = degenerate(problem.id, rules.precision, problem.name)
    if rules.distributions:
        # `identity` holds on KernelBench's positive inputs only (ReLU and its like); a ruleset with
        # other kinds of inputs judges on negative ones too.
        listed = tuple(reason for reason in listed if reason != "identity")
    harness_only = "broken_reference" in degenerate(problem.id, "fp32", problem.name)
    return tuple(r for r in listed if not (harness_only and r == "broken_reference"))
