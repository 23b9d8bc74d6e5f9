"""Times of references, eager and compiled: what `kernelgym baseline --modes --workers` measures.

Not covered: how the times change from one start to the next; each is of one process.
"""

from __future__ import annotations

import collections
from typing import Any

from benchmarks.runs.shows import Show
from kernelgym.benchmark.times_file import TimesFile, measure_all
from kernelgym.judge.measuring.process import compile_threads, measure_reference
from kernelgym.judging_memory import memory_budget
from kernelgym.reference_time import MODES, ReferenceTime, TimeSetting, time_settings
from kernelgym.types import Problem

__all__ = ["measure_times", "write_times"]

_LONGEST_S = 150.0
_LEAST_S = 25.0
"""No measurement begins with less time left."""
_ON_CPU = ("eager", "default")


class OutOfTime(Exception):
    """The budget ended while a reference was measured: that says nothing of the reference."""


def measure_times(show: Show, workers: int) -> None:
    """Time references until the time is up; the rest is left for the next call."""
    choice = show.choice
    modes = choice.modes
    every = _ON_CPU if show.device == "cpu" else MODES
    wide = time_settings(every, ("fp32",), ("torch",), show.device)
    few = [setting for setting in wide if setting.mode in modes]
    pairs = [(problem, s) for problem in show.problems(choice.every_mode) for s in wide]
    rest = [each for each in choice.references if each not in choice.every_mode]
    pairs += [(problem, s) for problem in show.problems(rest) for s in few]
    file = TimesFile.open(show.work / "baselines.jsonl", show.device, show.machine)
    threads = compile_threads(workers)

    def measure(problem: Problem, setting: TimeSetting) -> ReferenceTime:
        left = show.left()
        found = measure_reference(
            *(problem, setting, show.device),
            timeout_s=min(_LONGEST_S, left),
            threads=threads,
        )
        if not found.measured and left < _LONGEST_S and show.left() <= 0:
            raise OutOfTime
        ms = f"{found.median:.4g} ms" if found.measured else found.message[:200]
        show.say(f"{problem.id}, {setting.mode}: {ms}")
        return found

    try:
        measure_all(
            *(file, pairs, measure),
            workers=workers,
            memory_bytes=memory_budget(None, show.device),
            until=lambda: show.left() < _LEAST_S,
        )
    except OutOfTime:
        pass
    write_times(show, len(pairs))


def write_times(show: Show, asked: int) -> None:
    """Write what is measured so far."""
    file = TimesFile.read(show.work / "baselines.jsonl")
    by_problem: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for time in file.times:
        row = {"message": time.message}
        if time.measured:
            names = ("mean", "std", "min", "max", "median", "trials", "compile_s")
            row = {name: getattr(time, name) for name in names}
        by_problem[time.problem_id][time.setting.mode] = row
    measured = sum(time.measured for time in file.times)
    counts = {"asked": asked, "measured": measured, "failed": len(file.times) - measured}
    data = {"setting": "fp32, TF32 torch", **counts, "problems": dict(by_problem)}
    show.write("baselines_gpu", data, "baselines")
