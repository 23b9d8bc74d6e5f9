"""Searches over a folder of kernels, with one budget.

A folder's kernels are its kernel specs (``*.json``) and its pairs of ``NAME.problem.py`` and
``NAME.kernel.py``. Files whose name begins with ``_`` or ``.`` are left out.

Contract:

- every file is read before anything is judged, and one that cannot be used ends the command;
- half of the budget is split by weight, the rest in rounds by weight and by what each kernel gained
  (`kernelgym_train.mcgs.sharing`); a search with nothing left to try gives its share to the others;
- under a limit of time kernels are searched one after the other, each in its share by weight of the
  time and the evaluations that are left. Time before a resumption counts, as it does for a kernel
  that is searched alone;
- if the search of one kernel fails, the others go on, and the failure's message is in the result;
- if a folder is resumed under the same limit, finished searches stay as they are;
- each kernel has its own folder, as if it were searched alone, and goes on from it.

``outdir/result.json`` (version 1): ``kernels`` (results by name, as of
`kernelgym_train.mcgs.finishing`), ``failed`` (messages by name), ``speedup`` (geometric mean by
weight over the kernels that were searched), ``evaluations``, ``seconds``, ``stopped``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym import UsageError, get_problem
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.controller import explore
from kernelgym_train.mcgs.files import SearchFolder, write_result_of_all
from kernelgym_train.mcgs.finishing import finish, write_result
from kernelgym_train.mcgs.session import SearchSession, stopped_by_ctrl_c
from kernelgym_train.mcgs.sharing import expected_gain, first_shares, next_shares
from kernelgym_train.mcgs.starting import begin
from kernelgym_train.mcgs.tactics import read_tactics, tactics_path
from kernelgym_train.mcgs.task import SearchTask, read_kernel, task_of, task_of_spec

VERSION = 1
_SAME_SHARE = 1.05  # a share of time that grew by less counts as unchanged after a resumption
_PROBLEM, _KERNEL = ".problem.py", ".kernel.py"


def read_tasks(
    folder: str | Path, language: str, *, any_form: bool = False
) -> tuple[SearchTask, ...]:
    """Return the tasks of a folder, by name.

    Args:
        folder: The folder.
        language: Language of the kernels ``NAME.kernel.py``; read from their texts if empty.
        any_form: Whether a writer changes the kernels, so that rules need not be able to.

    Raises:
        UsageError: If the folder has no kernel, a file cannot be used, or two kernels have one
            name.
    """
    folder, found = Path(folder), list[SearchTask]()
    files = sorted(path for path in folder.iterdir() if not path.name.startswith(("_", ".")))
    for path in files:
        if path.suffix == ".json":
            try:
                found.append(task_of_spec(path, any_form=any_form))
            except UsageError as error:
                told = str(error)
                raise UsageError(told if str(path) in told else f"{path}: {told}") from None
        elif path.name.endswith(_PROBLEM):
            kernel = path.with_name(path.name.removesuffix(_PROBLEM) + _KERNEL)
            if kernel not in files:
                raise UsageError(f"{path} has no kernel beside it; add {kernel.name}")
            start = read_kernel(kernel, language)
            name = path.name.removesuffix(_PROBLEM)
            try:
                found.append(task_of(get_problem(path), start, name, any_form=any_form))
            except UsageError as error:
                raise UsageError(f"{kernel}: {error}") from None
    if not found:
        raise UsageError(
            f"folder {str(folder)!r} holds no kernel; put kernel specs (*.json) into it, or pairs "
            f"of NAME{_PROBLEM} and NAME{_KERNEL}"
        )
    for task in found:
        if [other.name for other in found].count(task.name) > 1:
            raise UsageError(f"two kernels of {str(folder)!r} are named {task.name!r}; rename one")
    return tuple(found)


def search_folder(
    tasks: Sequence[SearchTask],
    evaluator_for: Callable[[SearchTask], Evaluator],
    outdir: Path,
    config: SearchConfig,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Search for a faster kernel of each task; return the content of ``result.json``.

    Args:
        tasks: The tasks, no two of one name.
        evaluator_for: Function that returns an evaluator which follows a task's rules; the
            evaluator stays open.
        outdir: Folder for results.
        config: Options of each search. The budget's evaluations and seconds are shared by all
            searches; its other limits hold for each.
        resume: Whether to go on with the searches in `outdir`, and begin those that it lacks.

    Raises:
        UsageError: If the budget is too little, or `outdir` holds one of the searches already, or
            tactics that cannot be read.
    """
    weights = {task.name: task.weight for task in tasks}
    shares = first_shares(config.budget.builds, weights)
    for task in tasks:
        SearchFolder(outdir, task.name).check_unused(resume)
    # A damaged file is refused before anything is judged, and once for all kernels.
    read_tactics(config.tactics or tactics_path(outdir))

    def opened(task: SearchTask, limits: Budget) -> SearchSession:
        own = dataclasses.replace(
            config, budget=limits, say=lambda line: config.say(f"{task.name}: {line}")
        )
        return SearchSession(task, evaluator_for(task), outdir, own, alone=False)

    with contextlib.ExitStack() as stack:
        run = _FolderSearch(tasks, config, opened, stack)
        stack.enter_context(stopped_by_ctrl_c(run.stop, config.say))
        if config.budget.seconds:
            run.one_by_one()
        else:
            run.in_rounds(shares)
        result = run.result()
    write_result_of_all(outdir, result)
    return result


class _FolderSearch:
    """The searches of a folder of kernels, while they run."""

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        config: SearchConfig,
        opened: Callable[[SearchTask, Budget], SearchSession],
        stack: contextlib.ExitStack,
    ) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._weights = {task.name: task.weight for task in tasks}
        self._budget, self._opened, self._stack = config.budget, opened, stack
        self._say, self._clock = config.say, config.clock
        self._began = config.clock()
        self._past: dict[str, float] = {}
        self._sessions: dict[str, SearchSession] = {}
        self._results: dict[str, dict[str, Any]] = {}
        self._failed: dict[str, str] = {}
        self._stopped = False

    def stop(self) -> None:
        """End all searches of the folder: no further kernel is sent to the judge."""
        self._stopped = True
        for session in self._sessions.values():
            session.stop()

    def one_by_one(self) -> None:
        """Search one kernel after the other, each with its share of the budget that is left."""
        waiting = dict(self._weights)
        for name, weight in self._weights.items():
            share = weight / sum(waiting.values())
            seconds = self._budget.seconds - self._seconds
            builds = int((self._budget.builds - self._evaluations) * share)
            if seconds > 0:
                self._explore(name, max(1, builds), contests=True, seconds=seconds * share)
                self._finish(name)
            del waiting[name]

    def in_rounds(self, shares: Mapping[str, int]) -> None:
        """Run all searches in rounds, then finish each.

        Args:
            shares: Evaluations of the first round, by kernel.
        """
        for name, builds in shares.items():
            self._explore(name, builds)
        while not self._stopped and (left := self._budget.builds - self._evaluations) > 0:
            open_ = {name: self._weights[name] for name in self._sessions if self._is_open(name)}
            if not open_:
                break
            states = {name: self._sessions[name].state for name in open_}
            gains = {
                name: expected_gain(each.leads, each.evaluations) for name, each in states.items()
            }
            for name, more in next_shares(left, open_, gains).items():
                if more and not self._stopped:
                    self._explore(name, states[name].evaluations + more)
        for name in self._sessions:
            self._explore(name, contests=True)
            self._finish(name)

    def result(self) -> dict[str, Any]:
        """Return the result of all kernels."""
        for name in self._tasks:
            if name not in self._results and name not in self._failed:
                why = "interrupted" if self._stopped else "no time was left"
                self._failed[name] = f"{why} before it was searched"
        whole = sum(self._weights[name] for name in self._results)
        value = sum(
            self._weights[name] / whole * math.log(result["speedup"])
            for name, result in self._results.items()
        )
        reasons = {result["stopped"] for result in self._results.values()}
        return {
            "version": VERSION,
            "kernels": self._results,
            "failed": self._failed,
            "speedup": math.exp(value),
            "evaluations": self._evaluations,
            "seconds": round(self._seconds, 1),
            "stopped": ", ".join(sorted(reasons)),
        }

    @property
    def _evaluations(self) -> int:
        return sum(session.state.evaluations for session in self._sessions.values())

    @property
    def _seconds(self) -> float:
        """Seconds that the opened searches have run, including the time before a resumption."""
        return self._clock() - self._began + sum(self._past.values())

    def _is_open(self, name: str) -> bool:
        """Return True if a kernel's search can use more evaluations."""
        stopped = self._sessions[name].state.stopped
        return name not in self._failed and stopped == "budget_builds"

    def _explore(
        self, name: str, builds: int = 0, *, contests: bool = False, seconds: float = 0.0
    ) -> None:
        """Let a search evaluate until a limit is met.

        Args:
            name: Name of the kernel.
            builds: Evaluations of the search in total; 0 to keep the limit.
            contests: Whether the best few are compared.
            seconds: Seconds of the search in total, with the time before a resumption; 0 for no
                limit.
        """
        if name in self._failed or (self._stopped and name not in self._sessions):
            return
        with self._guarded(name):
            if name not in self._sessions:
                limits = dataclasses.replace(self._budget, builds=builds, seconds=seconds)
                session = self._stack.enter_context(self._opened(self._tasks[name], limits))
                self._sessions[name] = session
                self._past[name] = session.state.seconds
                session.keep_limit(_SAME_SHARE)
                if self._stopped:  # by Ctrl-C while the session was opened, unknown to `stop`
                    session.stop()
                if session.result is None:
                    begin(session)
            session = self._sessions[name]
            if session.result is not None and not builds:
                return
            limits = dataclasses.replace(session.budget, builds=builds or session.budget.builds)
            explore(session, limits, contests=contests)

    def _finish(self, name: str) -> None:
        if name in self._failed or name not in self._sessions:
            return
        with self._guarded(name):
            session = self._sessions[name]
            if (result := session.result) is None:
                result = finish(session)
            else:
                write_result(session, result)
            self._results[name] = result

    @contextlib.contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Keep a failure of one search from ending the others."""
        try:
            yield
        except Exception as error:
            self._failed[name] = str(error) or type(error).__name__
            self._say(f"{name} failed: {self._failed[name]}")


def whole_sentence(result: Mapping[str, Any], outdir: Path) -> str:
    """Return a folder's result in one sentence."""
    kernels, failed = result["kernels"], result["failed"]
    faster = sum(bool(each["best"]["diff"]) for each in kernels.values())
    told = f", {len(failed)} failed ({', '.join(failed)})" if failed else ""
    return (
        f"{faster} of {len(kernels) + len(failed)} kernels are faster{told}: "
        f"{result['speedup']:.3g}x on average after {result['evaluations']} evaluations in "
        f"{result['seconds']:.0f} s: {outdir / 'result.json'}"
    )
