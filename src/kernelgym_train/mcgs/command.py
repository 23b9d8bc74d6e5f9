"""``kernelgym-train --backend mcgs``: a search from the command line."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from kernelgym import LocalEvaluator
from kernelgym_train.config.settings import describe, plain
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.finishing import sentence
from kernelgym_train.mcgs.live import live_table
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.settings import SearchSettings, read_search_settings
from kernelgym_train.mcgs.task import Task, read_task
from kernelgym_train.mcgs.variant import read_variant

__all__ = ["estimate", "help_settings", "run_search"]

_LEAST, _MOST = (2.8, 0.35, 40), (4.1, 6.0, 100)
"""Seconds of a build and of the rest of a verdict, as measured on a quiet machine with two cores,
and verdicts of the comparisons."""


def help_settings() -> None:
    """Print every key of the command."""
    for key in describe(SearchSettings):
        print(f"{key.path} = {key.default!r}\n    {key.help} ({key.type})")


def run_search(given: Sequence[str], *, dry_run: bool = False) -> int:
    """Search, and print the result's sentence; returns the exit code.

    Args:
        given: Texts such as ``budget_builds=20``.
        dry_run: Print the settings and what there is to try, and judge nothing.

    Raises:
        UsageError: If something that was given does not fit.
    """
    settings = read_search_settings(given)
    task = read_task(settings.input, settings.problem, settings.kernel, settings.language)
    if dry_run:
        _print_plan(settings, task)
        return 0
    outdir = Path(settings.outdir)
    with (
        LocalEvaluator(ruleset=settings.ruleset, workers=settings.workers) as evaluator,
        live_table(settings.budget.builds) as (say, watch),
    ):
        result = search(
            task,
            evaluator,
            outdir,
            budget=settings.budget,
            algo=settings.algo,
            approximate=settings.approximate,
            seed=settings.seed,
            workers=settings.workers,
            require_quiet=settings.require_quiet,
            resume=settings.resume,
            say=say,
            watch=watch,
        )
    print(sentence(result, SearchFolder(outdir, task.name)))
    return 0


def _print_plan(settings: SearchSettings, task: Task) -> None:
    """Print the settings, the start's proposals, and an estimate."""
    for name, value in plain(settings).items():
        print(f"{name}: {value}")
    start = read_variant(task.start)
    proposer = RuleProposer(start, approximate=settings.approximate)
    for move, prior in proposer.priors(start):
        count = 0
        while proposer.propose(start, move, count) is not None:
            count += 1
        print(f"{move}: {count} ways from the start, prior {prior:.2f}")
    print(estimate(settings.budget, settings.workers, os.cpu_count() or 1))


def estimate(budget: Budget, workers: int, cores: int) -> str:
    """Return what a search may take, in a sentence.

    Args:
        budget: Its limits.
        workers: Kernels that are judged at the same time.
        cores: Processors of the machine.
    """
    builders = min(workers, cores)
    least, most = (
        max(budget.builds * build_s / builders, budget.builds * judge_s) + verdicts * judge_s
        for build_s, judge_s, verdicts in (_LEAST, _MOST)
    )
    if budget.seconds:
        least, most = min(least, budget.seconds), min(most, budget.seconds)
    ends = f", sooner after {budget.patience} without a gain" if budget.patience else ""
    return (
        f"at most {budget.builds} evaluations{ends}, and {_LEAST[2]} to {_MOST[2]} verdicts to "
        f"compare the best: {least / 60:.0f} to {math.ceil(most / 60)} minutes where a build takes "
        f"{_LEAST[0]:g} to {_MOST[0]:g} s and a verdict {_LEAST[1]:g} to {_MOST[1]:g} s, as with "
        "kernels of 1 to 100 ms"
    )
