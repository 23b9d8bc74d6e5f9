"""`Session`: one kernel's search, open on the disk.

Contract: a session opens the search's log, and holds it until it is closed. `begin` judges the
start, `explore` evaluates until a limit is met, and may be called again with wider limits, `finish`
confirms and writes the best. A session on the log of a search that was cut off goes on where that
was. Nothing but a session writes into the search's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelgym import UsageError, duel
from kernelgym.judge.provenance import provenance
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.algorithms import NEEDS_OPTUNA
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.controller import Controller, Duelling
from kernelgym_train.mcgs.events import Event, EventLog
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.finishing import finish, write_story
from kernelgym_train.mcgs.launch_choices import launch_choices
from kernelgym_train.mcgs.moves.cpp.parallelise import parallelise
from kernelgym_train.mcgs.progress import Progress
from kernelgym_train.mcgs.proposing import Proposer, RuleProposer
from kernelgym_train.mcgs.shapes import ShapesEvaluator
from kernelgym_train.mcgs.starting import ask_report, judge_start, why_times_differ
from kernelgym_train.mcgs.tactics import add_tactics, read_tactics
from kernelgym_train.mcgs.task import Task
from kernelgym_train.mcgs.variant import builds_extension, context_key, read_variant, state_key

__all__ = ["Session", "check_algorithm", "rules_for", "stopped_by_ctrl_c"]


def check_algorithm(algo: str) -> None:
    """Make sure that what an algorithm needs is installed.

    Raises:
        UsageError: If it is not.
    """
    if algo in NEEDS_OPTUNA and importlib.util.find_spec("optuna") is None:
        raise UsageError(f"algo={algo} needs optuna; run: pip install 'kernelgym[search]'")


def rules_for(task: Task, approximate: bool) -> RuleProposer:
    """Return the rules' proposer, with moves of the task and this machine.

    Args:
        task: What is searched.
        approximate: Whether moves that make results less accurate are allowed.
    """
    start = read_variant(task.start)
    more = launch_choices(task.spec, start.language)
    if builds_extension(start.language):
        more = (*more, parallelise(os.cpu_count() or 1))
    return RuleProposer(start, approximate=approximate, more=more)


class Session:
    """One kernel's search.

    Args:
        task: The task.
        evaluator: Judges and times kernels; it stays open.
        outdir: Folder of all results.
        budget: Limits that it begins with.
        algo: Name of an algorithm.
        approximate: Whether moves that make results less accurate are allowed.
        seed: Of the search's own random numbers.
        workers: Kernels judged at the same time.
        deterministic: Whether results are taken in in the order in which kernels were sent.
        root_noise: Share of the start's priors that is random, 0 to 1.
        proposer: Proposes variants; the rules' if None.
        compare: Compares two kernels.
        together: Whether states that are likely to be judged are built together, where the
            evaluator can build without judging.
        say: Is told a line for the reader at the terminal.
        watch: Is given each event, those first that a resumed search finds.
        clock: Returns seconds.
        alone: Whether its result is that of `outdir` as well.

    Raises:
        UsageError: If `root_noise` is no share, the evaluator's rules are not the task's, the
            folder holds a search of another context, or another process has it open.
    """

    def __init__(
        self,
        task: Task,
        evaluator: Evaluator,
        outdir: Path,
        *,
        budget: Budget,
        algo: str,
        approximate: bool,
        seed: int,
        workers: int,
        deterministic: bool = True,
        root_noise: float = 0.0,
        proposer: Proposer | None = None,
        compare: Duelling = duel,
        together: bool = True,
        say: Callable[[str], None] = lambda line: None,
        watch: Callable[[Event], None] = lambda event: None,
        clock: Callable[[], float] = time.monotonic,
        alone: bool = True,
    ) -> None:
        if not 0.0 <= root_noise <= 1.0:
            raise UsageError(f"root_noise={root_noise:g} is no share; give 0 to 1")
        rules = task.rules(evaluator.ruleset)
        if rules != evaluator.ruleset:
            raise UsageError(
                f"{task.name} has tolerances of its own, which make the ruleset {rules.label!r}, "
                f"and the evaluator follows {evaluator.ruleset.label!r}; give it the ruleset that "
                "spec.rules returns"
            )
        if task.shapes:
            evaluator = ShapesEvaluator(evaluator, task.problem, task.shapes)
        self.task, self.evaluator, self.budget = task, evaluator, budget
        self.approximate = approximate or task.approximate
        self.folder = SearchFolder(outdir, task.name, alone=alone)
        start = read_variant(task.start)
        self.context = {
            "task": task.digest,
            "ruleset": evaluator.ruleset.label,
            "approximate": str(self.approximate),
            # One entry a line, so that a refusal names what has changed: device, compiler, ...
            **{line.partition(" ")[0]: line for line in provenance(evaluator.device)},
        }
        self._algo, self._seed, self._say = algo, seed, say
        self.proposer = proposer or rules_for(task, self.approximate)
        self.progress = Progress.begin(state_key(start), start)
        if not self.folder.is_begun:  # refused before there is a folder
            read_tactics(outdir, self.context)
        self._log = EventLog.open(self.folder.events)
        try:
            if self._log.past:
                _check_context(dict(self._log.past[0].fields["context"]), self.context)
                for event in self._log.past:
                    self.progress.take(event)
                    watch(event)
        except BaseException:
            self._log.close()
            raise
        self._refused = False
        self._tell_report()
        self._controller = Controller(
            task,
            evaluator,
            self.proposer,
            self.progress,
            self._log,
            self.folder,
            context=context_key(self.context.items()),
            algo=algo,
            budget=budget,
            seed=seed,
            workers=workers,
            deterministic=deterministic,
            root_noise=root_noise,
            duel=compare,
            together=together,
            say=say,
            watch=watch,
            clock=clock,
        )

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, if nothing is left to do; None otherwise."""
        if self.progress.finished is None or self.progress.may_go_on(self.budget):
            return None
        return dict(self.progress.finished)

    def begin(self, require_quiet: bool = False) -> None:
        """Judge the start, unless that was done.

        Args:
            require_quiet: Whether to refuse a host on which verdicts of it differ by 10 %.

        Raises:
            UsageError: If it is wrong, not timed, or the host is not quiet, or if the folder's
                tactics cannot be read. What was written for a search that was new is removed, and
                the session cannot begin again.
        """
        if self._refused:
            raise UsageError(
                f"the search of {self.task.name} was refused when it began, and its log is gone; "
                "open another session"
            )
        controller, progress = self._controller, self.progress
        # Those of a search that goes on are in its log; the file has to be sound all the same.
        tactics = read_tactics(self.folder.outdir, self.context)
        new = not progress.begun
        if new:
            fields = {"context": self.context, "algo": self._algo, "seed": self._seed}
            controller.record("search", {**fields, "tactics": tactics})
        try:
            judge_start(controller, self.task, self.evaluator, self.folder, self.budget.seconds)
            if (busy := why_times_differ(progress)) and require_quiet:
                raise UsageError(f"{busy}; wait until the host is idle, or leave require_quiet out")
        except UsageError:
            if new:
                self._refused = True
                self.folder.forget()
            raise
        ask_report(controller, self.task, self.evaluator, self.proposer)
        self._tell_report()
        factor = progress.start_speedup
        self._say(f"start: {factor:.3g} of the reference's speed, noise {progress.noise:.1%}")
        if busy:
            self._say(f"warning: {busy}, so gains below that are not seen")

    def _tell_report(self) -> None:
        """Tell the proposer what the start's compiler said, if it wants that."""
        takes = getattr(self.proposer, "take_report", None)
        if takes is not None and self.progress.report is not None:
            takes(self.progress.report)

    def explore(self, budget: Budget | None = None, *, contests: bool = True) -> None:
        """Evaluate until a limit is met.

        Args:
            budget: Other limits than before.
            contests: Whether the best few are compared afterwards.
        """
        self.budget = budget or self.budget
        self._controller.go_on(self.budget)
        if self.progress.stopped and self.progress.may_go_on(self.budget):
            self._controller.record("resumed", {"limits": dataclasses.asdict(self.budget)})
        asyncio.run(self._controller.run(contests=contests))

    def finish(self) -> dict[str, Any]:
        """Confirm and write the best; return the result.

        What moves came to is added to the folder's tactics.
        """
        fresh = dict(self.progress.experience.fresh)
        result = finish(
            self._controller,
            self.task,
            self.evaluator,
            self.folder,
            self.proposer,
            context=self.context,
            approximate=self.approximate,
            say=self._say,
        )
        try:
            add_tactics(self.folder.outdir, self.context, fresh)
        except (OSError, UsageError) as error:  # the result is there, and stands
            self._say(f"warning: what moves came to was not kept: {error}")
        return result

    def keep_limit(self, factor: float) -> None:
        """Keep the limit that ended the search, unless this is longer.

        Args:
            factor: How many times as long is much longer.
        """
        if self.progress.stopped == "seconds":
            before = self.progress.limits["seconds"]
            if before < self.budget.seconds <= factor * before:
                self.budget = dataclasses.replace(self.budget, seconds=before)

    def write(self, result: Mapping[str, Any]) -> None:
        """Write the files of a result, in case a kill came before."""
        self.folder.write_result(result)
        write_story(self._controller, self.task, self.evaluator, self.folder, result)

    def stop(self) -> None:
        """Dispatch nothing any more, under whatever limits."""
        self._controller.stop()

    def close(self) -> None:
        """Let another process open the search."""
        self._log.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
def stopped_by_ctrl_c(stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """Have the first Ctrl-C end a search in order.

    Args:
        stop: Is called once.
        say: Is told a line for the reader at the terminal.
    """

    def interrupted(*_: object) -> None:
        say("interrupted: what is being judged is waited for, and the best so far is checked")
        stop()
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, interrupted)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
