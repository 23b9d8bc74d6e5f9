"""``kernelgym baseline --modes``: time references eager and compiled, for tables of runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgym.benchmark.baseline_files import write_baselines
from kernelgym.benchmark.times_file import TimesFile, measure_all
from kernelgym.cli.console import print_table, print_text
from kernelgym.cli.lint import chosen_problems
from kernelgym.cli.progress import progress_bar
from kernelgym.devices import find_device
from kernelgym.errors import UsageError
from kernelgym.judging_memory import memory_budget, parse_bytes
from kernelgym.machine import machine
from kernelgym.reference_time import MODES, ReferenceTime, TimeSetting, time_settings
from kernelgym.types import Problem

if TYPE_CHECKING:
    from kernelgym.cli.baseline import BaselineCommand

_DEFAULT_FILE = "baselines.jsonl"
_ON_CPU = ("eager", "default", "max-autotune", "max-autotune-no-cudagraphs")


def time_modes(options: BaselineCommand) -> int:
    """Time references in the modes of the options; return the exit code."""
    from kernelgym.judge.measuring.process import compile_threads, measure_reference

    device = find_device(options.device)
    if options.trials < 3:
        raise UsageError(f"--trials is at least 3, got {options.trials}")
    if options.timeout_s <= 0:
        raise UsageError(f"--timeout-s is above 0, got {options.timeout_s:g}")
    if options.workers < 1:
        raise UsageError(f"--workers is at least 1, got {options.workers}")
    if options.workers > 1 and device == "cpu":
        raise UsageError(
            "--workers needs a GPU: on the CPU, compiling one reference takes time from "
            "another's trials; leave it out"
        )
    settings = time_settings(
        _words(options.modes, _ON_CPU if device == "cpu" else MODES),
        _words(options.precisions),
        _words(options.tf32),
        device,
    )
    problems = chosen_problems(options.targets)
    here = machine(device, "torch", "triton")
    name = str(here.get("gpu") or here["cpu"]).partition(",")[0]
    layout, hardware = Path(options.kernelbench), options.hardware or name
    if options.kernelbench:  # refuse what the layout cannot hold before anything is measured
        asked = [
            ReferenceTime(each.id, each.digest, s, device) for each in problems for s in settings
        ]
        write_baselines(layout, hardware, problems, asked, name)
    budget = memory_budget(parse_bytes(options.memory), device)
    file = TimesFile.open(Path(options.out or _DEFAULT_FILE), device, here)

    def measure(problem: Problem, setting: TimeSetting) -> ReferenceTime:
        return measure_reference(
            problem,
            setting,
            device,
            trials=options.trials,
            timeout_s=options.timeout_s,
            memory_bytes=budget,
            threads=compile_threads(options.workers),
        )

    with progress_bar("timing", len(problems) * len(settings)) as advance:
        times = measure_all(
            file,
            list(itertools.product(problems, settings)),
            measure,
            refresh=options.refresh,
            advance=advance,
            workers=options.workers,
            memory_bytes=budget,
        )
    _print(times, settings, device)
    if options.kernelbench:
        paths = write_baselines(layout, hardware, problems, times, name)
        print_text(f"{len(paths)} files in KernelBench's layout in {options.kernelbench}")
    return 0 if all(time.measured for time in times) else 1


def _words(text: str, every: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the comma-separated words of an option; all words of `every` for ``all``."""
    if text == "all" and every:
        return tuple(every)
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _print(times: Sequence[ReferenceTime], settings: Sequence[TimeSetting], device: str) -> None:
    several = len({(s.precision, s.tf32) for s in settings}) > 1
    rows = []
    for time in times:
        setting = time.setting
        told = str(setting) if several else setting.mode
        numbers = (time.mean, time.std, time.min, time.max) if time.measured else ()
        cells = [f"{ms:.4g}" for ms in numbers] or ["-"] * 4
        rows.append((time.problem_id, told, *cells, str(time.trials), time.message))
    head = ("problem", "mode", "mean ms", "std", "min", "max", "trials", "because")
    print_table(head, rows, f"references on {device}")
    done = sum(time.measured for time in times)
    print_text(f"{done} of {len(times)} timed")
