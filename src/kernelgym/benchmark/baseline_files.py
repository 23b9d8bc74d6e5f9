"""Baseline times of a run's problems, from kernelgym's files or KernelBench's.

A file of kernelgym is a `kernelgym.benchmark.times_file.TimesFile`, and ends in ``.jsonl``. One of
KernelBench is ``{"level1": {"23_Softmax.py": {"mean", "std", "min", "max", "num_trials",
"hardware", "device"}}}``, times in milliseconds, one file a mode
(``results/timing/HARDWARE/baseline_time_torch*.json``). The key ends in ``.py``, unlike
`Problem.name`.

Contract: a file that names another device, precision or TF32 setting than the run's is refused.
KernelBench's own files name the hardware only. From kernelgym's files, the times in the precision
and TF32 setting of the run's ruleset are used.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym.benchmark.numbers.speeds import BaselineTime
from kernelgym.benchmark.recorded_runs import RecordedRun
from kernelgym.benchmark.times_file import TimesFile
from kernelgym.errors import UsageError
from kernelgym.precision import judged_precisions
from kernelgym.records.foreign_json import read_foreign_json
from kernelgym.reference_time import ReferenceTime
from kernelgym.rulesets import Ruleset, recorded_ruleset
from kernelgym.types import Problem

EAGER = "baseline_time_torch"
"""Stem of the name of the file of eager times; names for compiled modes begin with it."""
_CUDAGRAPHS = "cudagraphs"  # a backend of its own; the other modes are Inductor's


def baseline_mode(path: Path) -> str:
    """Return the mode in a file's name, such as ``inductor_max-autotune``."""
    name = path.stem.removeprefix(EAGER).strip("_")
    return name.removeprefix("compile_") or "eager"


def baseline_file(mode: str) -> str:
    """Return the name of the file of a mode of `kernelgym.reference_time.MODES`."""
    if mode == "eager":
        return f"{EAGER}.json"
    return f"{EAGER}_compile_{mode if mode == _CUDAGRAPHS else f'inductor_{mode}'}.json"


def timing_folder(folder: Path, hardware: str) -> Path:
    """Return the folder that holds the files of a device, below a checkout or an export."""
    return folder / "results" / "timing" / (re.sub(r"[^\w.+-]+", "_", hardware) or "unknown")


def baselines_of(
    run: RecordedRun, paths: Sequence[str | Path]
) -> dict[str, tuple[BaselineTime, ...]]:
    """Return the baselines of a run's problems, by id.

    Args:
        run: The run.
        paths: Files of kernelgym or in KernelBench's layout.

    Raises:
        UsageError: If a file cannot be read, holds none of the run's problems, or was measured on
            another device, at another precision or with another setting of TF32.
    """
    problems = {played.key[0]: played.record.trajectory.problem for played in run.episodes}
    found: dict[str, list[BaselineTime]] = defaultdict(list)
    for path in map(Path, paths):
        read = _ours if path.suffix == ".jsonl" else _theirs
        some = read(path, problems, run)
        for identity, times in some.items():
            found[identity] += times
        if not some:
            raise UsageError(
                f"{path} holds a time of none of the problems of {run.name}; is it of another "
                "level or version?"
            )
    return {identity: tuple(times) for identity, times in found.items()}


def _ours(
    path: Path, problems: Mapping[str, Problem], run: RecordedRun
) -> dict[str, list[BaselineTime]]:
    file, rules = TimesFile.read(path), _rules(run)
    gpu = str(file.machine.get("gpu", "")).partition(",")[0].strip()
    _check_hardware(path, gpu, file.device, run)
    found: dict[str, list[BaselineTime]] = defaultdict(list)
    other = set()
    for identity, problem in problems.items():
        for time in file.times:
            if not time.measured or time.digest != problem.digest:
                continue
            setting = time.setting
            if rules and (setting.precision, setting.tf32) != (rules.precision, rules.tf32):
                other.add(f"{setting.precision} with TF32 {setting.tf32}")
                continue
            found[identity].append(BaselineTime(time.mean, time.std, time.trials, setting.mode))
    if other and not found:
        assert rules is not None
        raise UsageError(
            f"{path} holds times in {', '.join(sorted(other))}, and {run.name} was judged in "
            f"{rules.precision} with TF32 {rules.tf32}; `kernelgym baseline --modes eager,default "
            f"--precisions {rules.precision} --tf32 {rules.tf32}` measures those"
        )
    return found


def _theirs(
    path: Path, problems: Mapping[str, Problem], run: RecordedRun
) -> dict[str, list[BaselineTime]]:
    data, _ = read_baselines(path)
    found: dict[str, list[BaselineTime]] = {}
    for identity, problem in problems.items():
        entry = entry_of(data, problem)
        if entry is None or entry.get("num_trials") == 0:  # an export of ours names untimed ones
            continue
        if entry.get("mean", "") is None:  # it was NaN or infinite
            continue
        _check(path, {**data, **entry}, run, problem)
        found[identity] = [_time(path, problem, entry)]
    return found


def entry_of(data: Mapping[str, Any], problem: Problem) -> Mapping[str, Any] | None:
    """Return the entry of a problem in KernelBench's data, or None."""
    level = data.get(f"level{problem.level}")
    if not isinstance(level, Mapping):
        return None
    entry = level.get(f"{problem.name}.py")
    return entry if isinstance(entry, Mapping) else None


def _time(path: Path, problem: Problem, entry: Mapping[str, Any]) -> BaselineTime:
    try:
        return BaselineTime(
            float(entry["mean"]),
            float(entry.get("std") or 0.0),
            int(entry.get("num_trials") or 1),
            baseline_mode(path),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: the entry of {problem.name} makes no sense: {error}") from None


def _rules(run: RecordedRun) -> Ruleset | None:
    """Return the run's ruleset; None if its label is not known."""
    try:
        return recorded_ruleset(run.rulesets[0]) if run.rulesets else None
    except UsageError:
        return None


def _check_hardware(path: Path, hardware: str, device: str, run: RecordedRun) -> None:
    ours = run.episodes[0].record.device if run.episodes else ""
    if device and ours and device.startswith("cpu") != ours.startswith("cpu"):
        raise UsageError(
            f"{path} was measured on {hardware or device!r} and {run.name} was judged on {ours!r}; "
            "times of different devices are not compared: give a baseline of that device"
        )
    gpu = str(run.machine.get("gpu", "")).partition(",")[0].strip()
    if gpu and hardware and hardware.lower() not in (gpu.lower(), gpu.lower().replace(" ", "_")):
        raise UsageError(
            f"{path} was measured on {hardware!r} and {run.name} was judged on {gpu!r}; times of "
            "different devices are not compared: give a baseline of that device"
        )


def _check(path: Path, says: Mapping[str, Any], run: RecordedRun, problem: Problem) -> None:
    """Refuse a file in KernelBench's layout whose device or settings are not the run's."""
    _check_hardware(path, str(says.get("hardware", "")), str(says.get("device", "")), run)
    size = "small" if problem.id.endswith("@small") else "full"
    measured = str(says.get("kernelgym_sizes", "full"))
    if measured != size:
        raise UsageError(
            f"{path} holds times of problems in {measured} size, and {run.name} has {problem.id}; "
            f"give a baseline of the {size} size"
        )
    rules = _rules(run)
    if rules is None:
        return
    own = judged_precisions(problem, rules) if rules.precision == "own" else ()
    for name, ours in (("precision", rules.precision), ("tf32", rules.tf32)):
        theirs = says.get(name)
        same = {"precision": (ours, *own), "tf32": (ours,)}[name]
        if theirs is not None and str(theirs) not in same:
            raise UsageError(
                f"{path} was measured with {name}={theirs} and {run.name} was judged with "
                f"{name}={ours}; give a baseline with that setting"
            )


def read_baselines(path: Path) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the data of a file of baselines in KernelBench's layout, and what is missing in it.

    Raises:
        UsageError: If the file cannot be read, or holds no baselines.
    """
    remedy = "give a file that `kernelgym baseline --modes` or KernelBench wrote"
    data, notes = read_foreign_json(path, "baselines", remedy)
    if not isinstance(data, dict) or not any(name.startswith("level") for name in data):
        raise UsageError(
            f'{path} holds no baselines; a file begins with {{"level1": {{"23_Softmax.py": ...}}}}'
        )
    return data, notes


def missing_times(paths: Sequence[str | Path]) -> tuple[str, ...]:
    """Return sentences on times in files of KernelBench's layout that are read as missing."""
    theirs = [path for path in map(Path, paths) if path.suffix != ".jsonl"]
    return tuple(note for path in theirs for note in read_baselines(path)[1])


def write_baselines(
    folder: Path,
    hardware: str,
    problems: Sequence[Problem],
    times: Sequence[ReferenceTime],
    device: str,
) -> tuple[Path, ...]:
    """Write times in KernelBench's layout, one file a mode; return the files.

    References without a time are left out, as KernelBench's scripts leave out failures.

    Args:
        folder: A checkout of KernelBench, or any folder.
        hardware: Name of the device in paths.
        problems: Problems whose references were timed.
        times: The times.
        device: Name of the device in the files.

    Raises:
        UsageError: If a problem is not one of KernelBench, is in a small form, or times of several
            precisions or TF32 settings would share a file.
    """
    other = [each.id for each in problems if not each.id.startswith("KernelBench/L")]
    other += [each.id for each in problems if each.id.endswith("@small")]
    if other:
        raise UsageError(
            f"KernelBench's layout holds its own problems in full size, got {other[0]!r}; leave "
            "--kernelbench out"
        )
    kinds = {(time.setting.precision, time.setting.tf32) for time in times}
    if len(kinds) > 1:
        told = ", ".join(f"{precision} with TF32 {tf32}" for precision, tf32 in sorted(kinds))
        raise UsageError(
            f"KernelBench's layout has one precision and TF32 setting a folder, got {told}; give "
            "one of each"
        )
    by_digest = {problem.digest: problem for problem in problems}
    files: dict[str, dict[str, dict[str, Any]]] = {}
    for time in times:
        if not time.measured:
            continue
        problem = by_digest[time.digest]
        file = files.setdefault(baseline_file(time.setting.mode), {})
        file.setdefault(f"level{problem.level}", {})[f"{problem.name}.py"] = {
            "mean": time.mean,
            "std": time.std,
            "min": time.min,
            "max": time.max,
            "num_trials": time.trials,
            "hardware": hardware,
            "device": device,
        }
    target = timing_folder(folder, hardware)
    if files:
        target.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (target / name).write_text(json.dumps(content, indent=4) + "\n", "utf-8")
    return tuple(target / name for name in files)
