"""`optimize`: a whole search, from a task to a verified best."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernelgym import Kernel, Problem, UsageError, duel
from kernelgym.judge.provenance import provenance
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.algorithms import NEEDS_OPTUNA
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.controller import Controller, Duelling
from kernelgym_train.mcgs.events import EventLog
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.finishing import finish
from kernelgym_train.mcgs.progress import Progress
from kernelgym_train.mcgs.proposing import Proposer, RuleProposer
from kernelgym_train.mcgs.task import Task, task_of
from kernelgym_train.mcgs.variant import context_key, read_variant, state_key

__all__ = ["optimize", "search"]


def optimize(
    problem: Problem,
    kernel: Kernel,
    evaluator: Evaluator,
    outdir: str | Path,
    *,
    budget: Budget | None = None,
    algo: str = "best_first",
    approximate: bool = False,
    seed: int = 0,
    workers: int = 2,
    resume: bool = False,
) -> dict[str, Any]:
    """Search for a faster kernel, and return what ``result.json`` holds.

    Args:
        problem: The problem.
        kernel: A correct kernel of it, in C++.
        evaluator: Judges and times kernels; it stays open. A cached one would give old times.
        outdir: Folder for results.
        budget: The limits; 60 evaluations if None.
        algo: A name of `kernelgym_train.mcgs.algorithms.ALGORITHMS`.
        approximate: Whether moves that make results less accurate are allowed.
        seed: Of the search's own random numbers.
        workers: Kernels judged at the same time; as many as the evaluator has workers.
        resume: Go on with the search that `outdir` holds.

    Returns:
        See `kernelgym_train.mcgs.finishing`.

    Raises:
        UsageError: If the kernel is wrong, or none that can be searched, or `outdir` holds another
            search.
    """
    return search(
        task_of(problem, kernel),
        evaluator,
        Path(outdir),
        budget=budget or Budget(),
        algo=algo,
        approximate=approximate,
        seed=seed,
        workers=workers,
        resume=resume,
    )


def search(
    task: Task,
    evaluator: Evaluator,
    outdir: Path,
    *,
    budget: Budget,
    algo: str,
    approximate: bool,
    seed: int,
    workers: int,
    resume: bool,
    require_quiet: bool = False,
    proposer: Proposer | None = None,
    compare: Duelling = duel,
    together: bool = True,
    say: Callable[[str], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Search, as `optimize` does, for a task.

    Args:
        task: The task.
        evaluator: As for `optimize`, like all below that are not named.
        outdir: See there.
        budget: See there.
        algo: See there.
        approximate: See there.
        seed: See there.
        workers: See there.
        resume: See there.
        require_quiet: Whether to refuse a host on which verdicts of the start differ by 10 %.
        proposer: Proposes variants; the rules' if None.
        compare: Compares two kernels.
        together: Whether states that are likely to be judged are built together, where the
            evaluator can build without judging.
        say: Is told a line for the reader at the terminal.
        clock: Returns seconds.
    """
    if algo in NEEDS_OPTUNA and importlib.util.find_spec("optuna") is None:
        raise UsageError(f"algo={algo} needs optuna; run: pip install 'kernelgym[search]'")
    folder = SearchFolder(outdir, task.name)
    start = read_variant(task.start)
    context = {
        "task": task.digest,
        "ruleset": evaluator.ruleset.label,
        "approximate": str(approximate),
        # One entry a line, so that a refusal names what has changed: the device, the compiler, ...
        **{line.partition(" ")[0]: line for line in provenance(evaluator.device)},
    }
    begun = folder.events.exists() and folder.events.stat().st_size > 0
    if resume and not begun:
        raise UsageError(
            f"there is no search in {str(folder.path)!r} to go on with; leave resume out"
        )
    if begun and not resume:
        raise UsageError(
            f"there is a search in {str(folder.path)!r}; go on with it by resume=true, or give "
            "another outdir"
        )
    with EventLog.open(folder.events) as log:
        progress = Progress.begin(state_key(start), start)
        if log.past:
            _check_context(dict(log.past[0].fields["context"]), context)
            for event in log.past:
                progress.take(event)
            goes_on = progress.may_go_on(budget)
            if progress.finished is not None and not goes_on:
                return dict(progress.finished)
            if goes_on:
                fields = {"limits": dataclasses.asdict(budget)}
                progress.take(log.append(progress.seconds, "resumed", fields))
        proposer = proposer or RuleProposer(start, approximate=approximate)
        controller = Controller(
            task,
            evaluator,
            proposer,
            progress,
            log,
            folder,
            context=context_key(context.items()),
            algo=algo,
            budget=budget,
            seed=seed,
            workers=workers,
            duel=compare,
            say=say,
            together=together,
            clock=clock,
        )
        if not log.past:
            controller.record("search", {"context": context, "algo": algo, "seed": seed})
        try:
            controller.judge_start()
            if (busy := controller.host_is_busy()) and require_quiet:
                raise UsageError(f"{busy}; wait until the host is idle, or leave require_quiet out")
        except UsageError:
            if not log.past:
                folder.forget()
            raise
        factor = progress.start_speedup
        say(f"start: {factor:.3g} of the reference's speed, noise {progress.noise:.1%}")
        if busy:
            say(f"warning: {busy}, so gains below that are not seen")
        with _stopped_by_ctrl_c(controller, say):
            asyncio.run(controller.run())
            return finish(
                controller,
                task,
                evaluator,
                folder,
                proposer,
                context=context,
                approximate=approximate,
                say=say,
            )


def _check_context(there: dict[str, str], now: dict[str, str]) -> None:
    """Refuse to go on where times would not compare.

    Raises:
        UsageError: If a part of the context is another one.
    """
    for part, value in now.items():
        if there.get(part) != value:
            raise UsageError(
                f"the search was begun with another {part} ({there.get(part)!r:.200}, now "
                f"{value!r:.200}); times do not compare: give another outdir"
            )


@contextlib.contextmanager
def _stopped_by_ctrl_c(controller: Controller, say: Callable[[str], None]) -> Iterator[None]:
    """Have the first Ctrl-C end the search in order."""

    def stop(*_: object) -> None:
        say("interrupted: what is being judged is waited for, and the best so far is checked")
        controller.stop()
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
