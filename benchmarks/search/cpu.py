"""Real searches on the CPU: what they find, how fast, and where the time goes.

Run ``python -m benchmarks.search.cpu [--out FILE]`` on a quiet machine with two cores; it takes
some hours. Each task is searched by each algorithm with three seeds, 60 evaluations or six minutes
each. Goals, of the median over seeds by the first algorithm named: matmul 40x over the start and
0.4 of torch's speed, LayerNorm 10x, softmax 3x with exact moves and 15x with approximate ones, and
a linear layer with GELU, which no move was written for, 1.5x.

A row holds the result's interval, the speed over torch, the noise that the search measured on its
start, evaluations a minute, and the share of builds in the time of builds and verdicts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.machine import machine
from benchmarks.search.linear_gelu import KERNEL, PROBLEM
from kernelgym import Kernel, LocalEvaluator, Problem
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.events import read_events
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.story import read_story
from kernelgym_train.mcgs.task import task_of

__all__ = ["TASKS", "reached", "row_of"]

TASKS: Mapping[str, tuple[tuple[Problem, Kernel], bool, float, float]] = MappingProxyType(
    {
        "matmul": (EXAMPLES["matmul"], False, 40.0, 0.4),
        "layernorm": (EXAMPLES["layernorm"], False, 10.0, 0.0),
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
    result = search(
        task_of(problem, start, name.split()[0]),
        evaluator,
        outdir,
        budget=budget,
        algo=algo,
        approximate=approximate,
        seed=seed,
        workers=2,
        resume=False,
    )
    folder = outdir / "kernels" / result["task"]
    story = read_story(read_events(folder / "events.jsonl"))
    builds = sum(row.build_s for row in story.rows)
    verdicts = sum(row.judge_s for row in story.rows)
    searching_s = story.rows[-1].seconds if story.rows else 0.0
    names = ("speedup", "speedup_low", "speedup_high", "evaluations", "failures", "stopped")
    return {
        "task": name,
        "algorithm": algo,
        "seed": seed,
        **{field: result[field] for field in names},
        "over_torch": result["over_reference"]["speedup"],
        "noise": result["noise"],
        "seconds": result["seconds"],
        "evaluations_a_minute": round(60 * len(story.rows) / max(searching_s, 1e-9), 2),
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
    """Run all searches and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument(
        "--algorithms", nargs="*", default=["auto", "best_first", "random"], choices=ALGORITHMS
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--builds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--keep", type=Path, help="folder for the searches' own folders")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    budget = Budget(given.builds, given.seconds)
    rows: list[dict[str, Any]] = []
    with LocalEvaluator(workers=2) as evaluator, tempfile.TemporaryDirectory() as scratch:
        for name in given.tasks:
            for algo in given.algorithms:
                for seed in range(given.seeds):
                    folder = f"{name.replace(' ', '_')}-{algo}-{seed}"
                    outdir = (given.keep or Path(scratch)) / folder
                    row = row_of(name, algo, seed, evaluator, outdir, budget)
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    for name, met in reached(rows, given.algorithms[0]).items():
        print(f"{name}: {'goal met' if met else 'goal missed'} by {given.algorithms[0]}")
    if given.out:
        data = {"machine": machine("optuna"), "builds": given.builds, "seconds": given.seconds}
        goals = {name: [task[2], task[3]] for name, task in TASKS.items()}
        given.out.write_text(json.dumps({**data, "goals": goals, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
