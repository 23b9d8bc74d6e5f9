"""``kernelgym-train --backend mcgs``: a search from the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kernelgym import LocalEvaluator
from kernelgym_train.config.settings import describe, plain
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.finishing import sentence
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.settings import SearchSettings, read_search_settings
from kernelgym_train.mcgs.task import Task, read_task
from kernelgym_train.mcgs.variant import read_variant

__all__ = ["help_settings", "run_search"]


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
    with LocalEvaluator(ruleset=settings.ruleset, workers=settings.workers) as evaluator:
        result = search(
            task,
            evaluator,
            outdir,
            budget=settings.budget,
            algo=settings.algo,
            approximate=settings.approximate,
            seed=settings.seed,
            workers=settings.workers,
            resume=settings.resume,
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
    print(sentence(result, SearchFolder(outdir, task.name)))
    return 0


def _print_plan(settings: SearchSettings, task: Task) -> None:
    """Print the settings, and how many proposals the start has."""
    for name, value in plain(settings).items():
        print(f"{name}: {value}")
    start = read_variant(task.start)
    proposer = RuleProposer(start, approximate=settings.approximate)
    for move, prior in proposer.priors(start):
        count = 0
        while proposer.propose(start, move, count) is not None:
            count += 1
        print(f"{move}: {count} ways from the start, prior {prior:.2f}")
    print(
        f"at most {settings.budget_builds} evaluations of some seconds each, and about 20 verdicts "
        "more to compare the best"
    )
