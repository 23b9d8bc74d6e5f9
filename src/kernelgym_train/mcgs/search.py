"""`optimize`: a whole search, from a task to a verified best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelgym import Kernel, Problem, UsageError
from kernelgym.suites.spec import KernelSpec
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.controller import explore
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.finishing import finish, write_result
from kernelgym_train.mcgs.session import SearchSession, stopped_by_ctrl_c
from kernelgym_train.mcgs.starting import begin
from kernelgym_train.mcgs.task import SearchTask, task_of, task_of_spec

_DEFAULT = SearchConfig()


def optimize(
    problem: Problem,
    kernel: Kernel,
    evaluator: Evaluator,
    outdir: str | Path,
    config: SearchConfig = _DEFAULT,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Search for a faster kernel, and return the content of ``result.json``.

    Args:
        problem: The problem.
        kernel: A correct kernel of the problem, in C++.
        evaluator: The evaluator that judges and times kernels; it stays open. An evaluator with a
            cache would return old times.
        outdir: Folder for results.
        config: Options of the search.
        resume: Whether to go on with the search that `outdir` holds.

    Returns:
        See `kernelgym_train.mcgs.finishing`.

    Raises:
        UsageError: If the kernel is wrong or cannot be searched, or `outdir` holds another search.
    """
    task = task_of(problem, kernel, any_form=config.writer is not None)
    return search(task, evaluator, Path(outdir), config, resume=resume)


def optimize_spec(
    spec: KernelSpec | str | Path,
    evaluator: Evaluator,
    outdir: str | Path,
    config: SearchConfig = _DEFAULT,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Search for a faster kernel of a spec, as `optimize` does.

    Args:
        spec: The spec, or its file.
        evaluator: The evaluator. If the spec has tolerances, it judges by them:
            ``LocalEvaluator(ruleset=spec.rules("strict"))``.
        outdir: Folder for results.
        config: Options of the search.
        resume: Whether to go on with the search that `outdir` holds.

    Raises:
        UsageError: As `optimize`, or if the spec cannot be used.
    """
    task = task_of_spec(spec, any_form=config.writer is not None)
    return search(task, evaluator, Path(outdir), config, resume=resume)


def search(
    task: SearchTask,
    evaluator: Evaluator,
    outdir: Path,
    config: SearchConfig = _DEFAULT,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Search for a faster kernel of a task, as `optimize` does.

    Args:
        task: The task.
        evaluator: The evaluator that judges and times kernels; it stays open.
        outdir: Folder for results.
        config: Options of the search.
        resume: Whether to go on with the search that `outdir` holds.
    """
    folder = SearchFolder(outdir, task.name)
    if others := folder.others():
        raise UsageError(
            f"{str(outdir)!r} holds the search of another kernel ({', '.join(others)}); give "
            "another outdir, or search the kernels of a folder together"
        )
    if resume and not folder.is_begun:
        raise UsageError(f"there is no search in {str(folder.path)!r} to resume; leave resume out")
    folder.check_unused(resume)
    with SearchSession(task, evaluator, outdir, config) as session:
        if (result := session.result) is not None:
            write_result(session, result)
            return result
        begin(session)
        with stopped_by_ctrl_c(session.stop, config.say):
            explore(session)
            return finish(session)
