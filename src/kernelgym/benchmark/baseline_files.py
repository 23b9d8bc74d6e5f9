"""Files of baseline times in KernelBench's layout.

A file is ``{"level1": {"23_Softmax.py": {"mean", "std", "min", "max", "num_trials", "hardware",
"device"}}}``, times in milliseconds, one file a mode
(``results/timing/HARDWARE/baseline_time_torch*.json``). The key has ``.py``, which `Problem.name`
has not.

Contract: a file of another device, precision or TF32 setting than the run's is refused where it
says so. KernelBench's own files name the hardware only.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym.benchmark.folders import Run
from kernelgym.benchmark.numbers.speeds import BaselineTime
from kernelgym.errors import UsageError
from kernelgym.rulesets import recorded_ruleset
from kernelgym.types import Problem

__all__ = ["EAGER", "baseline_mode", "baselines_of", "entry_of", "read_baselines"]

EAGER = "baseline_time_torch"
"""Stem of the file of eager times; compiled modes add to it."""


def baseline_mode(path: Path) -> str:
    """Return the mode in a file's name, such as ``inductor_max-autotune``."""
    name = path.stem.removeprefix(EAGER).strip("_")
    return name.removeprefix("compile_") or "eager"


def baselines_of(run: Run, paths: Sequence[str | Path]) -> dict[str, tuple[BaselineTime, ...]]:
    """Return the baselines of a run's problems, by id.

    Args:
        run: The run.
        paths: Files in KernelBench's layout.

    Raises:
        UsageError: If a file cannot be read, holds none of the run's problems, or was measured on
            another device, at another precision or with another setting of TF32.
    """
    problems = {played.key[0]: played.record.trajectory.problem for played in run.episodes}
    found: dict[str, list[BaselineTime]] = defaultdict(list)
    for path in map(Path, paths):
        data = read_baselines(path)
        some = 0
        for identity, problem in problems.items():
            entry = entry_of(data, problem)
            if entry is None:
                continue
            _check(path, {**data, **entry}, run)
            found[identity].append(_time(path, problem, entry))
            some += 1
        if not some:
            raise UsageError(
                f"{path} holds a time of none of the problems of {run.name}; is it of another "
                "level or version?"
            )
    return {identity: tuple(times) for identity, times in found.items()}


def entry_of(data: Mapping[str, Any], problem: Problem) -> Mapping[str, Any] | None:
    """Return the entry of a problem, or None."""
    level = data.get(f"level{problem.level}")
    if not isinstance(level, Mapping):
        return None
    entry = level.get(f"{problem.name}.py")
    return entry if isinstance(entry, Mapping) else None


def _time(path: Path, problem: Problem, entry: Mapping[str, Any]) -> BaselineTime:
    try:
        return BaselineTime(
            float(entry["mean"]),
            float(entry.get("std", 0.0)),
            int(entry.get("num_trials", 1)),
            baseline_mode(path),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: the entry of {problem.name} makes no sense: {error}") from None


def _check(path: Path, says: Mapping[str, Any], run: Run) -> None:
    """Refuse a file that was measured otherwise than the run."""
    gpu = str(run.machine.get("gpu", "")).partition(",")[0].strip()
    hardware = str(says.get("hardware", ""))
    if gpu and hardware and hardware.lower() not in (gpu.lower(), gpu.lower().replace(" ", "_")):
        raise UsageError(
            f"{path} was measured on {hardware!r} and {run.name} was judged on {gpu!r}; times of "
            "different devices are not compared: give a baseline of that device"
        )
    try:
        rules = recorded_ruleset(run.rulesets[0]) if run.rulesets else None
    except UsageError:
        rules = None
    if rules is None:
        return
    for name, ours in (("precision", rules.precision), ("tf32", rules.tf32)):
        theirs = says.get(name)
        same = {"precision": ("own",), "tf32": ()}[name]
        if theirs is not None and str(theirs) != ours and ours not in same:
            raise UsageError(
                f"{path} was measured with {name}={theirs} and {run.name} was judged with "
                f"{name}={ours}; give a baseline with that setting"
            )


def read_baselines(path: Path) -> Mapping[str, Any]:
    """Return what a file of baselines holds.

    Raises:
        UsageError: If it cannot be read, or holds none.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the baselines in {str(path)!r}: {error}") from None
    if not isinstance(data, dict) or not any(name.startswith("level") for name in data):
        raise UsageError(
            f'{path} holds no baselines; a file begins with {{"level1": {{"23_Softmax.py": ...}}}}'
        )
    return data
