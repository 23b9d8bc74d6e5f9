"""Files of references' times, eager and compiled.

A file of times is JSON lines: a head (version, device, machine), then one `ReferenceTime` each, as
they are measured. The same command goes on where a killed one stopped.

Contract: a file holds times of one device and one machine; those of another are refused, since
their ratio says nothing. Does not cover measuring (`kernelgym.judge.measuring`) and KernelBench's
layout (`kernelgym.benchmark.baseline_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.records.jsonlines import append_line, read_lines
from kernelgym.reference_time import ReferenceTime, TimeSetting
from kernelgym.types import Problem

__all__ = ["TimesFile", "measure_all"]

VERSION = 1
_SAME = ("cpu", "gpu", "torch", "triton")
"""Facts of a machine that decide a reference's time."""


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
