"""``kernelgym baseline``: compile references ahead, or time them in several modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from kernelgym.baseline import Baseline
from kernelgym.cli.console import print_table, print_text
from kernelgym.cli.lint import chosen_problems
from kernelgym.cli.options import MemoryOption, ResultsOption
from kernelgym.cli.progress import progress_bar
from kernelgym.errors import UsageError
from kernelgym.judging_memory import parse_bytes
from kernelgym.rulesets import Ruleset, precise_rules
from kernelgym.types import Problem


@dataclass(frozen=True, kw_only=True)
class BaselineCommand(MemoryOption, ResultsOption):
    """Compile the references of problems with torch.compile, and print their times.

    Rulesets whose baseline is "compile" or "best" time kernels against what is prepared here. With
    --modes, references are timed in these modes instead, each in a process of its own, for tables
    of finished runs. Exit code 0 if every problem has its baseline, else 1.
    """

    targets: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PROBLEM|SUITE")
    ]
    """Problems or suites: Synthetic/L1/2, Synthetic/L1, KernelBench/L2/1-20,33, a problem file or
    a folder of them."""
    device: str = "cpu"
    """Device that references are compiled for."""
    ruleset: str = "strict"
    """Ruleset whose precision and use of TF32 apply: strict or kernelbench."""
    precision: str = ""
    """Precision in place of the ruleset's: own (the problem's), fp32, fp16 or bf16."""
    refresh: bool = False
    """Compile references again even if they were compiled before; with --modes, also measure
    again what --out holds."""
    modes: str = ""
    """Modes in which references are timed, separated by commas: eager, default, reduce-overhead,
    max-autotune, max-autotune-no-cudagraphs, cudagraphs; or all, for every mode of the device."""
    precisions: str = "own"
    """With --modes: precisions, separated by commas: own (each problem's), fp32, fp16, bf16."""
    tf32: str = "off"
    """With --modes: whether fp32 work on a GPU may use TF32: off, on, or torch (its defaults:
    convolutions only), separated by commas."""
    trials: int = 100
    """With --modes: number of calls to time."""
    timeout_s: float = 300.0
    """With --modes: seconds that one problem and mode may take, compiling included."""
    workers: int = 1
    """With --modes, on a GPU: number of references measured at the same time. Each has the device
    to itself while it is timed; compiling takes CPU cores."""
    out: str = ""
    """With --modes: file of times; baselines.jsonl if not given. The same command again measures
    only what the file lacks."""
    kernelbench: str = ""
    """With --modes: write results/timing/HARDWARE/ in this folder as well, as KernelBench's scripts
    read it."""
    hardware: str = ""
    """Name of the hardware in that path; the device's name if not given."""

    def run(self) -> int:
        """Prepare or time the baselines; return the exit code."""
        if self.modes:
            from kernelgym.cli.baseline_modes import time_modes

            return time_modes(self)
        for name in ("out", "kernelbench", "hardware"):
            if getattr(self, name):
                raise UsageError(f"--{name} needs --modes, such as --modes eager,default")
        if self.workers != 1:
            raise UsageError("--workers needs --modes, such as --modes eager,default")
        rules = precise_rules(self.ruleset, self.precision)
        self.check_json()
        problems = chosen_problems(self.targets)
        results = _prepare(problems, rules, self.device, self.refresh, self.memory)
        self.write_json({"results": [result.to_dict() for result in results]})
        _print(results, rules, self.device)
        return 0 if all(result.prepared for result in results) else 1


def _prepare(
    problems: Sequence[Problem], rules: Ruleset, device: str, refresh: bool, memory: str
) -> list[Baseline]:
    """Prepare baselines one by one, since compilers use all cores and timing needs them idle."""
    from kernelgym.judge import LocalEvaluator

    results = []
    with (
        LocalEvaluator(device, rules, memory_bytes=parse_bytes(memory)) as evaluator,
        progress_bar("compiling", len(problems)) as advance,
    ):
        for problem in problems:
            try:
                results.append(evaluator.prepare_baseline(problem, refresh=refresh))
            except UsageError as error:
                if len(problems) == 1:
                    raise
                results.append(Baseline(problem.id, device, message=str(error)))
            advance()
    return results


def _print(results: Sequence[Baseline], rules: Ruleset, device: str) -> None:
    rows = []
    for result in results:
        times = [result.eager_ms, result.compile_ms] if result.prepared else []
        cells = [f"{ms:.4g}" for ms in times] or ["-", "-"]
        state = "prepared" if result.prepared else "not prepared"
        rows.append((result.problem_id, *cells, state, result.message))
    title = f"{rules.label}, {rules.precision}, on {device}"
    print_table(("problem", "eager ms", "compile ms", "baseline", "because"), rows, title)
    done = [result for result in results if result.prepared]
    faster = sum(result.compile_ms < result.eager_ms for result in done)
    print_text(f"{len(done)} of {len(results)} prepared, {faster} faster compiled")
