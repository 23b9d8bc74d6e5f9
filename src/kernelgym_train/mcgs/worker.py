"""`repeat`: repeats one evaluation of a search, from its ``control.json``.

A variant's folder holds its module and ``control.json``, and the search's ``baseline/run.json``
says what kernels are judged on: a problem, or the file of a kernel spec, whose hidden shapes stand
in no file of the search.

Contract: the kernel is judged as it lies on the disk, with the seed of its verdict in the search,
so that it gets the same inputs, and is then timed alternately with the start.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym import Kernel, Problem, UsageError
from kernelgym.evaluators.abilities import Duels
from kernelgym.evaluators.duel import time_ratio
from kernelgym.starting_kernel import standard_of
from kernelgym.types import Evaluator, Verdict
from kernelgym_train.mcgs.building import is_busy
from kernelgym_train.mcgs.shapes import ShapesEvaluator
from kernelgym_train.mcgs.task import SearchTask, task_of, task_of_spec

_PROBLEM = ("id", "suite", "level", "name", "source", "family")


def run_of(task: SearchTask, ruleset: str) -> dict[str, Any]:
    """Return the content of ``run.json``: problem, rules and devices by which a search judges.

    Args:
        task: Task of the search.
        ruleset: Label of the rules that kernels are judged by.
    """
    problem = None
    if not task.shapes:
        problem = {name: getattr(task.problem, name) for name in _PROBLEM}
    start = task.start
    return {
        "task": task.name,
        "language": start.language,
        "digest": start.digest,
        "ruleset": ruleset,
        "spec": task.file,
        "problem": problem,
    }


@dataclass(frozen=True, slots=True)
class RepeatedEvaluation:
    """One evaluation of a search, as its files describe it."""

    task: SearchTask
    kernel: Kernel
    seed: str
    """Seed of the verdict in the search; empty if there is none."""
    before: float | None
    """ln of the speedup over the start that the search found; None if it found none."""
    ruleset: str
    """Label of the rules of the search."""


def read_control(path: Path) -> RepeatedEvaluation:
    """Return the evaluation that a ``control.json`` describes.

    Raises:
        UsageError: If a file is missing or damaged, or the kernel's text has changed.
    """
    folder = path.resolve().parent  # `best` is a link into the folder of variants
    control = _read(path, "control.json of a search's variant")
    root = folder.parent.parent
    run = _read(root / "baseline" / "run.json", "run.json of a search's baseline")
    try:
        start = _kernel(root / "baseline", str(run["language"]))
        kernel = _kernel(folder, str(control["language"]))
        if run["problem"] is not None:
            problem = Problem(**run["problem"])
            task = task_of(problem, start, str(run["task"]), any_form=True)
        elif run["spec"]:
            task = dataclasses.replace(task_of_spec(run["spec"], any_form=True), start=start)
        else:
            raise UsageError(
                f"{root / 'baseline' / 'run.json'} names no file of a spec, since the search was "
                "begun from Python with a spec in memory; repeat it from there"
            )
        key, digest, ruleset = control["state"], control["digest"], str(run["ruleset"])
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path} or its search's run.json lacks {error}; search again") from None
    if kernel.digest != digest:
        raise UsageError(
            f"{folder / 'kernel_module.py'} has changed since the search: its digest is "
            f"{kernel.digest}, and {path} has {digest}"
        )
    seed = _value(folder / "result.json", "seed") or ""
    nodes = _value(root / "search_state.json", "nodes") or {}
    before = nodes[key]["value"] if key in nodes else None
    return RepeatedEvaluation(task, kernel, seed, before, ruleset)


def repeat(asked: RepeatedEvaluation, evaluator: Evaluator, say: Callable[[str], None]) -> Verdict:
    """Judge a kernel again, time it with the start, print both results; return the verdict.

    Args:
        asked: The evaluation.
        evaluator: Evaluator that follows the task's rules.
        say: Function that is given each line for the reader.

    Raises:
        UsageError: If the evaluator follows other rules than the search.
    """
    label = evaluator.capabilities.ruleset.label
    if label != asked.ruleset:
        raise UsageError(
            f"the search was judged by the ruleset {asked.ruleset!r}, and this is {label!r}; give "
            "ruleset= as the search had it"
        )
    task = asked.task
    if task.shapes:
        evaluator = ShapesEvaluator(evaluator, task.problem, task.shapes)
    verdict = evaluator.evaluate(task.problem, asked.kernel, seed=asked.seed)
    say(f"{verdict.status.value}: {verdict.message}" if verdict.message else verdict.status.value)
    if not verdict.correct:
        return verdict
    if (timing := verdict.timing) is not None:
        high = f"{timing.speedup_high:.3g}" if timing.speedup_high else "?"
        interval = f"{timing.speedup:.3g} ({timing.speedup_low:.3g} to {high})"
        say(f"{interval} of {standard_of(task.problem)}'s speed")
    pair = None
    if (duels := evaluator.ability(Duels)) is not None:
        pair = duels.duel_round(task.problem, [task.start, asked.kernel])
    ratio = None if pair is None else time_ratio(pair[0], pair[1])
    if ratio is not None:
        told = "" if asked.before is None else f"; {math.exp(asked.before):.3g}x in the search"
        say(f"{ratio:.3g}x over the start in one round{told}")
    if is_busy([verdict, *(pair or ())]):
        say("the host was busy (host_busy), so times vary: judge again when it is idle")
    return verdict


def _kernel(folder: Path, language: str) -> Kernel:
    path = folder / "kernel_module.py"
    try:
        return Kernel(path.read_bytes().decode(), language)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the kernel {path}: {error}") from None


def _read(path: Path, what: str) -> Mapping[str, Any]:
    """Return a JSON object.

    Raises:
        UsageError: If the file is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is no {what}: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no {what}: it holds no object")
    return found


def _value(path: Path, name: str) -> Any:
    """Return a field of a JSON object; None if the field is missing."""
    try:
        return json.loads(path.read_text(encoding="utf-8")).get(name)
    except (OSError, ValueError, AttributeError):
        return None
