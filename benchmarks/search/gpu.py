"""Run real searches of Triton and CUDA kernels on a GPU, and record their gains and their time.

Run ``python -m benchmarks.search.gpu --out FILE --keep FOLDER`` on a machine with one GPU. Each
task is searched by ``tpe``, 60 evaluations each, the products and the softmax with three seeds and
by ``random`` as well. Goals, of the median over seeds: a product of two matrices of 4096 from
blocks of 16 to 0.75 (fp16) and 0.85 (fp32) of cuBLAS's speed, a softmax of three passes to 0.95 of
the bandwidth of a copy. The other tasks have no goal; two of them are a product of matrices and a
softmax in CUDA. KernelBench's problems are compared with the faster of eager and compiled PyTorch,
and left out if they are not on the machine.

``--only``, ``--seeds`` and ``--algorithms`` run a slice, ``--seconds`` limits each search, and
``--until SECONDS`` begins no search after so many seconds. With ``--ncu-every``, hardware counters
steer the search, as the setting of that name says. What the file holds is not run again, and with
``--keep`` a search that was cut off goes on where it was, so that a command that was cut off is
given once more.

A row holds what `benchmarks.search.cpu` says, the share of the bandwidth of a copy that the best
achieves (``floor_share``), the share of the search's time in which it had the device alone to time
kernels (``share_of_device``), and the ``curve``: after each evaluation, the seconds since the
search began and the speedup over the start of the best so far, by single measurements.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.machine import gpu, machine
from benchmarks.search.cpu import figures_of
from benchmarks.search.gpu_kernels import OWN_TASKS, kernelbench_tasks
from kernelgym import Kernel, KernelgymError, LocalEvaluator, Problem, UsageError, Verdict
from kernelgym.evaluators.abilities import Duels
from kernelgym.evaluators.base import EvaluatorWrapper
from kernelgym.rulesets import Ruleset, precise_rules
from kernelgym.types import Evaluator, Job
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.events import read_events
from kernelgym_train.mcgs.task import SearchTask, task_of

__all__ = ["GOALS", "TimingSeconds", "curve", "floor_share", "reached"]

GOALS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "matmul_fp16": ("over_torch", 0.75),
        "matmul_fp32": ("over_torch", 0.85),
        "softmax": ("floor_share", 0.95),
    }
)
"""(field of a row, least value) by task."""
_MORE_SEEDS = tuple(GOALS)


class TimingSeconds(EvaluatorWrapper):
    """Evaluator that adds up the seconds in which kernels were timed alone on the device."""

    def __init__(self, evaluator: Evaluator) -> None:
        super().__init__(evaluator)
        self._spent = list[float]()

    @property
    def seconds(self) -> float:
        """Seconds that timing has taken so far, over all verdicts."""
        return sum(self._spent)

    def submit(self, job: Job, seed: str = "") -> Future[Verdict]:
        """Return the future of a verdict, and note for how long its kernel was timed."""
        future = self.evaluator.submit(job, seed)
        future.add_done_callback(self._note_done)
        return future

    def duel_round(
        self, problem: Problem, kernels: Sequence[Kernel], *, seed: str = ""
    ) -> tuple[Verdict, ...] | None:
        """Judge kernels in turns, and note for how long they were timed."""
        duels = self.evaluator.ability(Duels)
        found = None if duels is None else duels.duel_round(problem, kernels, seed=seed)
        for verdict in found or ():
            self._note(verdict)
        return found

    def _note_done(self, future: Future[Verdict]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._note(future.result())

    def _note(self, verdict: Verdict) -> None:
        if verdict.stages is not None:
            self._spent.append(verdict.stages.timing_s)


def floor_share(outdir: Path) -> float:
    """Return the share of the bandwidth of a copy in the last verdict on a search's best.

    0 if there is none, or it has no time.
    """
    result = next(outdir.glob("kernels/*/best/result.json"), None)
    timing = json.loads(result.read_text(encoding="utf-8"))["timing"] if result else None
    return float(timing["floor_ms"] / timing["kernel_ms"]) if timing else 0.0


def curve(outdir: Path) -> list[tuple[float, float]]:
    """Return (seconds, best speedup over the start so far) after each evaluation of a search."""
    (log,) = outdir.glob("kernels/*/events.jsonl")
    best, found = 0.0, []
    for event in read_events(log):
        if event.name == "judged":
            best = max(best, event.fields["value"] or 0.0)
            found.append((round(event.seconds, 1), round(math.exp(best), 4)))
    return found


def reached(rows: Sequence[Mapping[str, Any]], algo: str) -> dict[str, bool]:
    """Return whether each task's goal was met, by the median over seeds."""
    found = {}
    for name, (field, least) in GOALS.items():
        own = [row[field] for row in rows if (row["task"], row["algorithm"]) == (name, algo)]
        if own:
            found[name] = statistics.median(own) >= least
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the searches that the file lacks and print their figures; return 1 if one failed."""
    began = time.monotonic()
    tasks = dict(OWN_TASKS)
    try:
        tasks |= kernelbench_tasks()
    except UsageError as error:
        print(f"without KernelBench: {error}")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(tasks), choices=tasks)
    parser.add_argument("--algorithms", nargs="*", default=["tpe", "random"], choices=ALGORITHMS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--builds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.0, help="of one search; 0: no limit")
    parser.add_argument("--ncu-every", type=int, default=0)
    parser.add_argument("--until", type=float, default=float("inf"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="folder for the searches' own folders")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []
    if given.out and given.out.exists():
        rows = json.loads(given.out.read_text(encoding="utf-8"))["rows"]
    names = ("task", "algorithm", "seed", "ncu_every")
    there = {tuple(row[each] for each in names) for row in rows}
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, algo, seed in itertools.product(given.only, given.algorithms, given.seeds):
            few = name not in _MORE_SEEDS and (seed != given.seeds[0] or algo == "random")
            known = (name, algo, seed, given.ncu_every) in there
            if few or known or time.monotonic() - began > given.until:
                continue
            task = task_of(*tasks[name], name.replace("/", "_"))
            outdir = given.keep or Path(scratch)
            outdir /= f"{task.name}-{algo}-{seed}-{given.ncu_every}"
            with LocalEvaluator(given.device, _rules(task.problem), given.workers) as judge:
                try:
                    rows.append({"task": name, **_found(judge, task, outdir, algo, seed, given)})
                except KernelgymError as error:
                    print(f"{name} by {algo}, seed {seed}: {error}", flush=True)
                    failed += 1
                    continue
                # Written before the evaluator closes, which an interruption may cut short.
                print(json.dumps(rows[-1]), flush=True)
                if given.out:
                    _write(given.out, rows, given.builds, given.device)
    for name, met in reached(rows, given.algorithms[0]).items():
        print(f"{name}: {'goal met' if met else 'goal missed'} by {given.algorithms[0]}")
    return 1 if failed else 0


def _found(
    judge: LocalEvaluator,
    task: SearchTask,
    outdir: Path,
    algo: str,
    seed: int,
    given: argparse.Namespace,
) -> dict[str, Any]:
    """Run a task's search, or resume the one in `outdir`; return its figures."""
    if task.problem.suite == "KernelBench":
        judge.prepare_baseline(task.problem)
    evaluator, began = TimingSeconds(judge), time.monotonic()
    config = SearchConfig(
        budget=Budget(given.builds, given.seconds),
        algo=algo,
        seed=seed,
        ncu_every=given.ncu_every,
        workers=given.workers,
        deterministic=False,  # measured times differ, so equal seeds give different searches anyway
        say=lambda line: print(line, flush=True),
    )
    figures = figures_of(task, evaluator, outdir, config)
    share = evaluator.seconds / (time.monotonic() - began)
    return {
        **{"floor_share": floor_share(outdir), **figures, "ncu_every": given.ncu_every},
        **{"curve": curve(outdir), "share_of_device": round(share, 3)},
    }


def _rules(problem: Problem) -> Ruleset:
    """Return the rules of a task: KernelBench's problems are compared with the best baseline."""
    return precise_rules("strict", "", "best" if problem.suite == "KernelBench" else "")


def _write(out: Path, rows: Sequence[Mapping[str, Any]], builds: int, device: str) -> None:
    about = {**machine("optuna", "triton"), **gpu(device)}
    data = {"machine": about, "device": device, "builds": builds}
    part = out.with_suffix(".part")
    part.write_text(json.dumps({**data, "rows": list(rows)}, indent=1) + "\n", encoding="utf-8")
    part.replace(out)


if __name__ == "__main__":
    sys.exit(main())
