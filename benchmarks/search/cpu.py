"""Run real searches on the CPU, and record their gains and their time.

Run ``python -m benchmarks.search.cpu --out FILE`` on a quiet machine with two cores; it takes some
hours. Each task is searched by each algorithm with three seeds, 60 evaluations or six minutes each.
Goals, of the median over seeds by the first algorithm named: matmul 40x over the start and 0.4 of
torch's speed, LayerNorm 10x (with approximate moves, too, which compute its sums in floats),
softmax 3x with exact moves and 15x with approximate ones, and a linear layer with GELU, which no
move was written for, 1.5x.

``--only matmul --seeds 0 --algorithms tpe`` runs a slice. Rows go into the file as they come: what
it holds is not run again, so that a command that was cut off is given once more. With ``--keep``, a
search that was cut off goes on where it was.

A row holds the day, the result's interval, the speed over torch, the noise that the search measured
on its start, evaluations a minute, the share of builds in the time of builds, verdicts and rounds,
and the load of the machine before and after. ``host_busy`` is true where the judge found the host
busy, or where the load was above the number of cores by more than one: such rows tell of a busy
machine, not of the search alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.machine import machine
from benchmarks.search.linear_gelu import KERNEL, PROBLEM
from kernelgym import Kernel, LocalEvaluator, Problem, UsageError
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.events import read_events
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.task import SearchTask, task_of

__all__ = ["TASKS", "figures_of", "kept_rows", "reached", "row_of", "write"]

TASKS: Mapping[str, tuple[tuple[Problem, Kernel], bool, float, float]] = MappingProxyType(
    {
        "matmul": (EXAMPLES["matmul"], False, 40.0, 0.4),
        "layernorm": (EXAMPLES["layernorm"], False, 10.0, 0.0),
        "layernorm approximate": (EXAMPLES["layernorm"], True, 10.0, 0.0),
        "softmax": (EXAMPLES["softmax"], False, 3.0, 0.0),
        "softmax approximate": (EXAMPLES["softmax"], True, 15.0, 0.0),
        "linear_gelu": ((PROBLEM, KERNEL), False, 1.5, 0.0),
    }
)
"""((problem, start), approximate moves allowed, goal over the start, goal over torch)."""


def row_of(
    name: str, algo: str, seed: int, evaluator: Evaluator, outdir: Path, budget: Budget
) -> dict[str, Any]:
    """Search a task; returns its figures."""
    (problem, start), approximate, _, _ = TASKS[name]
    task = task_of(problem, start, name.split()[0])
    config = SearchConfig(budget=budget, algo=algo, approximate=approximate, seed=seed)
    return {"task": name, **figures_of(task, evaluator, outdir, config)}


def figures_of(
    task: SearchTask, evaluator: Evaluator, outdir: Path, config: SearchConfig
) -> dict[str, Any]:
    """Search a task, or go on with its search in `outdir`; returns its figures."""
    log = outdir / "kernels" / task.name / "events.jsonl"
    begun = log.exists() and log.stat().st_size > 0
    load = os.getloadavg()[0]
    result = search(task, evaluator, outdir, config, resume=begun)
    events = read_events(log)
    judged = [event for event in events if event.name == "judged"]
    loads = [round(load, 2), round(os.getloadavg()[0], 2)]
    busy = any(event.fields["host_busy"] for event in events if event.name == "start")
    builds = sum(event.fields["build_s"] for event in judged)
    verdicts = sum(event.fields["wall_s"] + event.fields.get("round_s", 0.0) for event in judged)
    searching_s = judged[-1].seconds if judged else 0.0
    names = ("speedup", "speedup_low", "speedup_high", "evaluations", "failures", "stopped")
    return {
        "algorithm": config.algo,
        "seed": config.seed,
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        **{field: result[field] for field in names},
        "over_torch": result["over_reference"]["speedup"],
        "noise": result["noise"],
        "load": loads,
        "host_busy": busy or max(loads) > (os.cpu_count() or 1) + 1,
        "seconds": result["seconds"],
        "evaluations_a_minute": round(60 * len(judged) / max(searching_s, 1e-9), 2),
        "share_of_builds": round(builds / max(builds + verdicts, 1e-9), 3),
        "moves": result["best"]["moves"],
    }


def reached(rows: Sequence[Mapping[str, Any]], algo: str) -> dict[str, bool]:
    """Return whether each task's goals were met, by the median over seeds."""
    found = {}
    for name, (_, _, over_start, over_torch) in TASKS.items():
        own = [row for row in rows if (row["task"], row["algorithm"]) == (name, algo)]
        if own:
            faster = statistics.median(row["speedup"] for row in own) >= over_start
            beside = statistics.median(row["over_torch"] for row in own) >= over_torch
            found[name] = faster and beside
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Run searches that the file lacks, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument(
        "--algorithms", nargs="*", default=["tpe", "best_first", "random"], choices=ALGORITHMS
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--builds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--keep", type=Path, help="folder for the searches' own folders")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    budget = Budget(given.builds, given.seconds)
    rows = kept_rows(given.out, given.builds, given.seconds)
    there = {(row["task"], row["algorithm"], row["seed"]) for row in rows}
    asked = itertools.product(given.only, given.algorithms, given.seeds)
    with LocalEvaluator(workers=2) as evaluator, tempfile.TemporaryDirectory() as scratch:
        for name, algo, seed in (each for each in asked if each not in there):
            folder = f"{name.replace(' ', '_')}-{algo}-{seed}"
            outdir = (given.keep or Path(scratch)) / folder
            rows.append(row_of(name, algo, seed, evaluator, outdir, budget))
            print(json.dumps(rows[-1]), flush=True)
            if given.out:
                write(given.out, rows, given.builds, given.seconds)
    for name, met in reached(rows, given.algorithms[0]).items():
        own = [
            row for row in rows if (row["task"], row["algorithm"]) == (name, given.algorithms[0])
        ]
        busy = sum(row["host_busy"] for row in own)
        told = f", {busy} of {len(own)} searches on a busy host" if busy else ""
        print(f"{name}: {'goal met' if met else 'goal missed'} by {given.algorithms[0]}{told}")


def kept_rows(out: Path | None, builds: int, seconds: float) -> list[dict[str, Any]]:
    """Return the rows that a file holds.

    Raises:
        UsageError: If they were found under other limits.
    """
    if out is None or not out.exists():
        return []
    data = json.loads(out.read_text(encoding="utf-8"))
    if (data["builds"], data["seconds"]) != (builds, seconds):
        raise UsageError(
            f"{out} holds searches of {data['builds']} evaluations or {data['seconds']:g} s, and "
            f"{builds} or {seconds:g} s are asked for; give another file"
        )
    rows: list[dict[str, Any]] = data["rows"]
    return rows


def write(out: Path, rows: Sequence[Mapping[str, Any]], builds: int, seconds: float) -> None:
    """Write the file: machine, limits, goals and rows."""
    goals = {name: [task[2], task[3]] for name, task in TASKS.items()}
    data = {"machine": machine("optuna"), "builds": builds, "seconds": seconds, "goals": goals}
    part = out.with_suffix(".part")
    part.write_text(json.dumps({**data, "rows": list(rows)}, indent=1) + "\n", encoding="utf-8")
    part.replace(out)


if __name__ == "__main__":
    main()
