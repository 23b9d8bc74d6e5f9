"""`optimize`: a whole search, from a task to a verified best."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, Unpack

from kernelgym import Kernel, Problem, UsageError, duel
from kernelgym.suites.spec import KernelSpec
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.controller import Duelling
from kernelgym_train.mcgs.events import Event
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.proposing import Proposer
from kernelgym_train.mcgs.session import Session, check_algorithm, stopped_by_ctrl_c
from kernelgym_train.mcgs.task import Task, task_of, task_of_spec

__all__ = ["SearchOptions", "optimize", "optimize_spec", "search"]


class SearchOptions(TypedDict, total=False):
    """What `optimize` and `optimize_spec` take beside what is searched."""

    budget: Budget
    """The limits; 60 evaluations unless given."""
    algo: str
    """A name of `kernelgym_train.mcgs.algorithms.ALGORITHMS`; ``best_first`` unless given."""
    approximate: bool
    """Whether moves that make results less accurate are allowed, as a spec's `allow_approximate`
    does; off unless given."""
    seed: int
    """Of the search's own random numbers; 0 unless given."""
    workers: int
    """Kernels judged at the same time, as many as the evaluator has workers; 2 unless given."""
    deterministic: bool
    """Whether results are taken in in the order in which kernels were sent to the judge, so that
    equal verdicts give equal searches; each as it comes if False. On unless given."""
    root_noise: float
    """Share of the start's priors that is random, for ``mcgs`` and ``auto``; 0 unless given."""
    resume: bool
    """Go on with the search that `outdir` holds; off unless given."""


def optimize(
    problem: Problem,
    kernel: Kernel,
    evaluator: Evaluator,
    outdir: str | Path,
    **options: Unpack[SearchOptions],
) -> dict[str, Any]:
    """Search for a faster kernel, and return what ``result.json`` holds.

    Args:
        problem: The problem.
        kernel: A correct kernel of it, in C++.
        evaluator: Judges and times kernels; it stays open. A cached one would give old times.
        outdir: Folder for results.
        options: See `SearchOptions`.

    Returns:
        See `kernelgym_train.mcgs.finishing`.

    Raises:
        UsageError: If the kernel is wrong, or none that can be searched, or `outdir` holds another
            search.
    """
    return search(task_of(problem, kernel), evaluator, Path(outdir), **options)


def optimize_spec(
    spec: KernelSpec | str | Path,
    evaluator: Evaluator,
    outdir: str | Path,
    **options: Unpack[SearchOptions],
) -> dict[str, Any]:
    """Search for a faster kernel of a spec, as `optimize` does.

    Args:
        spec: The spec, or its file.
        evaluator: Judges by the spec's tolerances, if the spec has any:
            ``LocalEvaluator(ruleset=spec.rules("strict"))``.
        outdir: Folder for results.
        options: See `SearchOptions`.

    Raises:
        UsageError: As `optimize`, or if the spec cannot be used.
    """
    return search(task_of_spec(spec), evaluator, Path(outdir), **options)


def search(
    task: Task,
    evaluator: Evaluator,
    outdir: Path,
    *,
    budget: Budget | None = None,
    algo: str = "best_first",
    approximate: bool = False,
    seed: int = 0,
    workers: int = 2,
    deterministic: bool = True,
    root_noise: float = 0.0,
    resume: bool = False,
    require_quiet: bool = False,
    proposer: Proposer | None = None,
    compare: Duelling = duel,
    together: bool = True,
    say: Callable[[str], None] = lambda line: None,
    watch: Callable[[Event], None] = lambda event: None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Search for a faster kernel of a task, as `optimize` does.

    Args:
        task: The task.
        evaluator: As for `optimize`, like `outdir`.
        outdir: See there.
        budget: See `SearchOptions`, like all before `require_quiet`.
        algo: See there.
        approximate: See there.
        seed: See there.
        workers: See there.
        deterministic: See there.
        root_noise: See there.
        resume: See there.
        require_quiet: Whether to refuse a host on which verdicts of the start differ by 10 %.
        proposer: Proposes variants; the rules' if None.
        compare: Compares two kernels.
        together: Whether states that are likely to be judged are built together, where the
            evaluator can build without judging.
        say: Is told a line for the reader at the terminal.
        watch: Is given each event, those first that a resumed search finds.
        clock: Returns seconds.
    """
    check_algorithm(algo)
    folder = SearchFolder(outdir, task.name)
    if others := folder.others():
        raise UsageError(
            f"{str(outdir)!r} holds the search of another kernel ({', '.join(others)}); give "
            "another outdir, or search the kernels of a folder together"
        )
    if resume and not folder.is_begun:
        raise UsageError(
            f"there is no search in {str(folder.path)!r} to go on with; leave resume out"
        )
    if folder.is_begun and not resume:
        raise UsageError(
            f"there is a search in {str(folder.path)!r}; go on with it by resume=true, or give "
            "another outdir"
        )
    with Session(
        task,
        evaluator,
        outdir,
        budget=budget or Budget(),
        algo=algo,
        approximate=approximate,
        seed=seed,
        workers=workers,
        deterministic=deterministic,
        root_noise=root_noise,
        proposer=proposer,
        compare=compare,
        together=together,
        say=say,
        watch=watch,
        clock=clock,
    ) as session:
        if (result := session.result) is not None:
            session.write(result)
            return result
        session.begin(require_quiet)
        with stopped_by_ctrl_c(session.stop, say):
            session.explore()
            return session.finish()
