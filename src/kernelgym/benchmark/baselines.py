"""Files of references' times, and the same in KernelBench's layout.

A file of times is JSON lines: a head (version, device, machine), then one `ReferenceTime` each, as
they are measured. The same command goes on where a killed one stopped.

Contract: a file holds times of one device and one machine; those of another are refused, since
their ratio says nothing. Does not cover measuring, which `kernelgym.judge.measuring` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import append_line, read_lines
from kernelgym.reference_time import ReferenceTime, TimeSetting
from kernelgym.types import Problem

__all__ = ["TimesFile", "best_compiled", "measure_all", "write_kernelbench"]

VERSION = 1
_SAME = ("cpu", "gpu", "torch", "triton")
"""Facts of a machine that decide a reference's time."""
_KERNELBENCH_FILES = {
    "eager": "baseline_time_torch",
    "cudagraphs": "baseline_time_torch_compile_cudagraphs",
}
_INDUCTOR_FILE = "baseline_time_torch_compile_inductor_{}"


@dataclass(frozen=True, slots=True)
class TimesFile:
    """A file of references' times."""

    path: Path
    device: str
    machine: Mapping[str, Any]
    """What `kernelgym.machine.machine` says of the machine."""
    times: tuple[ReferenceTime, ...] = ()

    @classmethod
    def read(cls, path: Path) -> TimesFile:
        """Read a file; of equal problems and settings the last counts.

        Raises:
            UsageError: If it is not there, or holds something else.
        """
        rows = [row for _, row in read_lines(path)]
        head = rows[0] if rows else {}
        if head.get("version") != VERSION or "machine" not in head:
            raise UsageError(
                f"{str(path)!r} is no file of references' times of version {VERSION}; "
                "`kernelgym baseline PROBLEMS --modes eager --out FILE` writes one"
            )
        found = {}
        for row in rows[1:]:
            try:
                time = ReferenceTime.from_dict(row)
            except (KeyError, TypeError, UsageError) as error:
                raise UsageError(
                    f"{str(path)!r} holds a row that cannot be read: {error}"
                ) from None
            found[time.digest, time.setting] = time
        return cls(path, str(head["device"]), head["machine"], tuple(found.values()))

    @classmethod
    def open(cls, path: Path, device: str, machine: Mapping[str, Any]) -> TimesFile:
        """Read a file to go on with, or begin it.

        Raises:
            UsageError: If it holds times of another device or machine.
        """
        if not path.exists():
            append_line(path, {"version": VERSION, "device": device, "machine": dict(machine)})
        found = cls.read(path)
        for what in ("device", *_SAME):
            theirs = found.device if what == "device" else found.machine.get(what)
            ours = device if what == "device" else machine.get(what)
            if theirs != ours:
                raise UsageError(
                    f"{str(path)!r} holds times of {what} {theirs!r}, and this is {ours!r}; give "
                    "another file to --out"
                )
        return found


def measure_all(
    file: TimesFile,
    problems: Sequence[Problem],
    settings: Sequence[TimeSetting],
    measure: Callable[[Problem, TimeSetting], ReferenceTime],
    *,
    refresh: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> tuple[ReferenceTime, ...]:
    """Measure what a file lacks, and write each time at once.

    Args:
        file: The file, as it is.
        problems: The problems.
        settings: How each is timed.
        measure: Times one reference.
        refresh: Measure anew what the file has, failures among it.
        advance: Called after each problem and setting.

    Returns:
        The times of `problems` in `settings`, in that order.
    """
    known = {(time.digest, time.setting): time for time in file.times}
    found = []
    for problem in problems:
        for setting in settings:
            time = None if refresh else known.get((problem.digest, setting))
            if time is None:
                time = measure(problem, setting)
                append_line(file.path, time.to_dict())
            found.append(time)
            advance()
    return tuple(found)


def best_compiled(
    times: Iterable[ReferenceTime], digest: str, precision: str, tf32: str
) -> ReferenceTime | None:
    """Return a problem's lowest mean, eager or compiled, or None.

    Args:
        times: Times of one file.
        digest: The problem's.
        precision: Of the setting.
        tf32: Of the setting.
    """
    fitting = (
        time
        for time in times
        if time.measured
        and time.digest == digest
        and (time.setting.precision, time.setting.tf32) == (precision, tf32)
    )
    return min(fitting, key=lambda time: time.mean, default=None)


def write_kernelbench(
    folder: Path,
    hardware: str,
    problems: Sequence[Problem],
    times: Sequence[ReferenceTime],
    machine: Mapping[str, Any],
) -> tuple[Path, ...]:
    """Write times as KernelBench's scripts read baselines; return the files.

    One file a mode under ``results/timing/<hardware>/``, its keys ``level<L>`` and
    ``<name>.py``. What was not measured is left out, as its scripts leave out what failed.

    Raises:
        UsageError: If a problem is none of KernelBench's, is in a small form, or times of several
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
    device = str(machine.get("gpu") or machine.get("cpu"))
    files: dict[str, dict[str, dict[str, Any]]] = {}
    for time in times:
        if not time.measured:
            continue
        mode, problem = time.setting.mode, by_digest[time.digest]
        name = _KERNELBENCH_FILES.get(mode, _INDUCTOR_FILE.format(mode))
        level = f"level{problem.level}"
        files.setdefault(name, {}).setdefault(level, {})[f"{problem.name}.py"] = {
            "mean": time.mean,
            "std": time.std,
            "min": time.min,
            "max": time.max,
            "num_trials": time.trials,
            "hardware": hardware,
            "device": device,
        }
    target = folder / "results" / "timing" / hardware
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in files.items():
        path = target / f"{name}.json"
        path.write_text(json.dumps(content, indent=4) + "\n", "utf-8")
        written.append(path)
    return tuple(written)
