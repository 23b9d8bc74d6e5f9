"""``kernelgym lint``: test whether a worthless kernel passes a problem."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kernelgym.cli.console import print_table, print_text
from kernelgym.cli.judging import problem_at
from kernelgym.cli.options import MemoryOption, ResultsOption
from kernelgym.cli.progress import progress_bar
from kernelgym.errors import UsageError
from kernelgym.hygiene import REASONS, Hygiene
from kernelgym.judging_memory import memory_budget, parse_bytes
from kernelgym.pretrained import check_models
from kernelgym.rulesets import Ruleset, precise_rules
from kernelgym.suites.known_memory import check_fits
from kernelgym.types import Problem

_LEVEL = re.compile(r"L(\d+)")
_CHOICE = re.compile(r"L(\d+)/([\d,\s-]*[,-][\d,\s-]*)")


@dataclass(frozen=True, kw_only=True)
class LintCommand(MemoryOption, ResultsOption):
    """Test whether worthless kernels pass problems, and whether the references are sound.

    Exit code 0 if every problem passed every test, else 1. Complete results are kept, and used by
    the environments.
    """

    targets: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PROBLEM|SUITE")
    ]
    """Problems or suites: Synthetic/L1/2, Synthetic/L1, KernelBench/L2/1-20,33, a problem file or
    a folder of them."""
    device: str = "cpu"
    """Device on which references run."""
    ruleset: str = "strict"
    """Rules of the comparison: strict or kernelbench."""
    precision: str = ""
    """Precision in place of the ruleset's: own (the problem's), fp32, fp16 or bf16."""
    workers: int = 1
    """Number of problems tested at the same time."""
    sizes: str = "full"
    """Sizes of KernelBench's problems: full, or small for a laptop."""
    timeout: float = 600.0
    """Largest number of wall seconds that the test of one problem may take."""
    refresh: bool = False
    """Test problems again that were tested before."""

    def run(self) -> int:
        """Test whether a worthless kernel passes each given problem; returns the exit code."""
        from kernelgym.devices import find_device

        rules = precise_rules(self.ruleset, self.precision)
        budget = memory_budget(parse_bytes(self.memory), find_device(self.device))
        if self.workers < 1:
            raise UsageError(f"--workers must be at least 1, got {self.workers}")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise UsageError(f"--timeout takes seconds above 0, got {self.timeout}")
        self.check_json()
        groups = _problems_by_target(self.targets, self.sizes)
        for group in groups:
            if len(group) == 1:  # of a suite, those that fit are tested
                check_models(group[0])
                check_fits(group[0], budget, self.device)
        problems = _distinct(groups)
        from kernelgym.judge.lint.process import lint

        found: dict[int, Hygiene] = {}
        with progress_bar("testing", len(problems)) as advance:
            for index, result in lint(
                problems,
                rules,
                self.device,
                workers=self.workers,
                timeout_s=self.timeout,
                refresh=self.refresh,
                memory_bytes=budget,
            ):
                found[index] = result
                advance()
        results = [found[index] for index in range(len(problems))]
        self.write_json({"results": [result.to_dict() for result in results]})
        _print(results, rules, self.device)
        return 0 if all(result.passes and result.tested for result in results) else 1


def chosen_problems(targets: Sequence[str], sizes: str = "full") -> tuple[Problem, ...]:
    """Return the problems that targets name, each once.

    Raises:
        UsageError: If one names nothing, or there is none.
    """
    return _distinct(_problems_by_target(targets, sizes))


def _problems_by_target(targets: Sequence[str], sizes: str) -> list[tuple[Problem, ...]]:
    if not targets:
        raise UsageError(
            "name a problem (Synthetic/L1/2, or a file) or a suite (Synthetic/L1, KernelBench, or "
            "a folder)"
        )
    return [_problems_of(target, sizes) for target in targets]


def _distinct(groups: Iterable[Sequence[Problem]]) -> tuple[Problem, ...]:
    return tuple({problem.id: problem for group in groups for problem in group}.values())


def _problems_of(target: str, sizes: str) -> tuple[Problem, ...]:
    from kernelgym.suites import SUITES, suite

    first, _, rest = target.partition("/")
    if first in SUITES and not target.endswith(".py"):
        if not rest:
            return suite(first, sizes=sizes).problems()
        if match := _LEVEL.fullmatch(rest):
            return suite(first, sizes=sizes).problems(int(match[1]))
        if match := _CHOICE.fullmatch(rest):
            return suite(first, sizes=sizes).problems(int(match[1]), match[2])
    elif _is_folder(target):
        return suite(target, sizes=sizes).problems()
    return (problem_at(target, sizes=sizes),)


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        return False


def _print(results: Sequence[Hygiene], rules: Ruleset, device: str) -> None:
    rows = [(result.problem_id, result.summary, _explanation(result)) for result in results]
    title = f"{rules.label}, {rules.precision}, on {device}"
    print_table(("problem", "hygiene", "because"), rows, title)
    failed = sum(not result.passes for result in results)
    untested = sum(result.passes and not result.tested for result in results)
    rest = len(results) - failed - untested
    said = f"{rest} of {len(results)} pass, {failed} degenerate"
    print_text(f"{said}, {untested} not tested" if untested else said)


def _explanation(result: Hygiene) -> str:
    parts = [REASONS[reason] for reason in result.reasons]
    return "; ".join([*parts, result.detail] if result.detail else parts)
