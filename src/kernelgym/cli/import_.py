"""``kernelgym import``: a run from KernelBench's folder."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kernelgym.cli import judging
from kernelgym.cli.console import print_text
from kernelgym.cli.options import JudgingOptions, MemoryOption
from kernelgym.cli.progress import progress_bar
from kernelgym.errors import UsageError
from kernelgym.machine import machine


@dataclass(frozen=True, kw_only=True)
class ImportCommand(MemoryOption, JudgingOptions):
    """Make a run from a folder of KernelBench's scripts.

    KernelBench's results are kept as claims, which the report shows beside our verdicts. The same
    command again continues where it stopped.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUNS_FOLDER")]
    """Folder of the run in KernelBench, runs/NAME."""
    level: int
    """Level of the problems."""
    out: str = ""
    """Folder to write; runs/NAME in the working folder if not given."""
    judge: bool = False
    """Judge the kernels; without it they are only imported."""
    gaps: bool = False
    """Accept a folder in which samples are missing."""
    baseline: str = ""
    """File of baseline times, from which claimed speedups are computed."""
    precision: str = ""
    """Precision in place of the ruleset's: own (the problem's), fp32, fp16 or bf16."""
    workers: int = 1
    """Number of kernels judged at the same time."""
    no_timing: bool = False
    """Judge correctness only."""

    def run(self) -> int:
        """Import the folder; return the exit code."""
        from kernelgym.benchmark.baseline_files import missing_times
        from kernelgym.benchmark.interchange.importing import import_run, judge_import
        from kernelgym.benchmark.kernelbench_folder import read_folder
        from kernelgym.devices import check_device
        from kernelgym.languages import check_language
        from kernelgym.rulesets import precise_rules

        if self.judge:
            judging.check_tools(self.language, self.device)
        rules = precise_rules(self.ruleset, self.precision)
        device = check_device(self.device)
        check_language(self.language, device, rules.precision)
        source = Path(self.folder)
        found = read_folder(source, self.level)
        out = Path(self.out) if self.out else Path("runs") / source.resolve().name
        if out.resolve() == source.resolve():
            raise UsageError(f"--out {out} is the folder that is imported; name another one")
        count = import_run(
            found,
            out,
            language=self.language,
            ruleset=self.ruleset,
            precision=self.precision,
            device=device,
            sizes=self.sizes,
            timing=not self.no_timing,
            gaps=self.gaps,
            baseline=Path(self.baseline) if self.baseline else None,
        )
        print_text(f"{count} kernels and {len(found.claims)} claims imported to {out}")
        lost = sum(map(len, found.gaps.values()))
        if lost:
            print_text(f"{lost} of {count + lost} samples are missing in {source}", "yellow")
        for note in found.notes + missing_times([self.baseline] if self.baseline else []):
            print_text(f"note: {note}", "yellow")
        if not self.judge:
            print_text("judge them by the same command with --judge", "dim")
            return 0
        with judging.open_evaluator(
            device, rules, self.workers, not self.no_timing, self.memory
        ) as evaluator:
            (out / "machine.json").write_text(json.dumps(machine(device, "torch"), indent=2))
            with progress_bar("kernels", count) as advance:
                judge_many = functools.partial(judging.judge_many, evaluator)
                judged = judge_import(out, judge_many, on_verdict=advance)
        print_text(f"{judged} kernels judged; see `kernelgym report {out}`")
        return 0
