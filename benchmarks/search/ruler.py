"""Check what searches report on a busy host against times that a script takes.

Run ``python -m benchmarks.search.ruler [--searches 20] [--spinning 1] [--out FILE]``. Twenty
searches over six C++ kernels run, each beside a process that only counts. The best of a search and
its start are then timed in turns in one process by `benchmarks.search.ruler_truth`, which uses
torch and the built libraries alone: once with idle cores, and once beside the process that counts.
Goals: the reported interval holds the true ratio in 18 of 20, and a gain above 1.2x is found in 9
of 10 of the searches whose kernel has one. A kernel has the gain that the best of its searches
found.

With ``--lanes N``, N searches run at the same time, each on two cores of its own with its own
cache, lock and spinning process. Rows go into FILE as they come; what it holds is not run again.
A row has the machine's load, so that a host with other work is told from one without.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.search.busy_host import spinning
from benchmarks.search.ruler_kernels import KERNELS
from kernelgym import LocalEvaluator
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.events import read_events
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.task import task_of

__all__ = ["searched", "summary"]

_GAIN = 1.2
_TRUTH = Path(__file__).parent / "ruler_truth.py"
_COMPARING = ("duel", "confirmed", "reduced")


def searched(
    name: str, seed: int, folder: Path, budget: Budget, spin: int, truth_s: float
) -> dict[str, Any]:
    """Search a kernel beside spinning processes, and time what was found; return its row.

    Args:
        name: One of `KERNELS`.
        seed: Seed of the search.
        folder: Folder of its results.
        budget: Limits of the search.
        spin: Number of processes that only count.
        truth_s: Seconds for which the script times the best and the start.
    """
    problem, start = KERNELS[name]
    load = os.getloadavg()[0]
    with LocalEvaluator(workers=2, cache_dir=folder / "cache") as evaluator:
        with spinning(spin):
            config = SearchConfig(budget=budget, seed=seed)
            result = search(task_of(problem, start, name), evaluator, folder, config)
            beside = _truth(problem.source, folder / "kernels" / name, truth_s, result)
        alone = _truth(problem.source, folder / "kernels" / name, truth_s, result)
    events = read_events(folder / "kernels" / name / "events.jsonl")
    comparing_s = sum(e.fields.get("took_s", 0.0) for e in events if e.name in _COMPARING)
    names = ("speedup", "speedup_low", "speedup_high", "evaluations", "failures", "untimed")
    more = ("seconds", "stopped", "noise", "host_busy", "busy_share", "undecided", "over_reference")
    return {
        "kernel": name,
        "seed": seed,
        "spinning": spin,
        **{field: result[field] for field in (*names, *more)},
        "true_alone": alone,
        "true_beside": beside,
        "share_of_comparisons": round(comparing_s / max(result["seconds"], 1e-9), 3),
        "moves": result["best"]["moves"],
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        "cores": len(os.sched_getaffinity(0)),
    }


def _truth(
    problem: str, folder: Path, seconds: float, result: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the script's times of the start and the best; None if the start is the best."""
    if not result["best"]["diff"]:
        return None
    (folder / "problem.py").write_text(problem)
    kernels = [
        folder / which / name
        for which in ("baseline", "best")
        for name in ("kernel_module.py", "extension.so")
    ]
    command = [sys.executable, str(_TRUTH), str(folder / "problem.py"), *map(str, kernels)]
    made = subprocess.run(
        [*command, "--seconds", str(seconds)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        return {"error": made.stderr[-400:]}
    return dict(json.loads(made.stdout.splitlines()[-1]))


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how often intervals held the true ratio, and how often gains were found."""

    def true(row: Mapping[str, Any], which: str) -> float:
        return 1.0 if row[which] is None else float(row[which].get("ratio", 0.0))

    def holds(row: Mapping[str, Any], which: str) -> bool:
        return bool(row["speedup_low"] <= true(row, which) <= row["speedup_high"])

    known = {
        name: max(true(row, "true_alone") for row in rows if row["kernel"] == name)
        for name in {row["kernel"] for row in rows}
    }
    gained = [row for row in rows if known[row["kernel"]] > _GAIN]
    return {
        "searches": len(rows),
        "holds_alone": sum(holds(row, "true_alone") for row in rows),
        "holds_beside": sum(holds(row, "true_beside") for row in rows),
        "with_gain": len(gained),
        "found": sum(true(row, "true_alone") > _GAIN for row in gained),
        "known": dict(sorted(known.items())),
        "share_of_comparisons": max((row["share_of_comparisons"] for row in rows), default=0.0),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the searches that the file lacks, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS), choices=KERNELS)
    parser.add_argument("--builds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.0, help="of a search; 0: no limit")
    parser.add_argument("--truth", type=float, default=5.0, help="seconds of the script")
    parser.add_argument("--spinning", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds: begin no more then")
    parser.add_argument("--one", help="KERNEL:SEED, to print its row alone")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    if given.one:
        name, _, seed = given.one.partition(":")
        budget = Budget(given.builds, seconds=given.seconds)
        with tempfile.TemporaryDirectory() as folder:
            row = searched(name, int(seed), Path(folder), budget, given.spinning, given.truth)
        print(json.dumps(row))
        return
    data: dict[str, Any] = {"machine": machine("torch"), "rows": []}
    if given.out is not None and given.out.exists():
        data = json.loads(given.out.read_text())
    there = {(row["kernel"], row["seed"], row["spinning"]) for row in data["rows"]}
    asked = [
        (given.kernels[number % len(given.kernels)], number // len(given.kernels))
        for number in range(given.searches)
    ]
    left = [case for case in asked if (*case, given.spinning) not in there]
    began, options = time.monotonic(), []
    for option in ("builds", "seconds", "truth", "spinning"):
        options += [f"--{option}", str(getattr(given, option))]

    usable = sorted(os.sched_getaffinity(0))

    def run(number: int) -> None:
        cores = ",".join(map(str, usable[2 * number : 2 * number + 2]))
        pin = ["taskset", "-c", cores] if given.lanes > 1 else []
        while left and time.monotonic() - began < given.stop_after:
            name, seed = left.pop(0)
            command = [sys.executable, "-m", "benchmarks.search.ruler", *options]
            command += ["--one", f"{name}:{seed}"]
            made = subprocess.run([*pin, *command], capture_output=True, text=True, check=False)
            if made.returncode:
                print(f"{name}:{seed} failed: {made.stderr[-600:]}", flush=True)
                continue
            row = json.loads(made.stdout.splitlines()[-1])
            data["rows"].append(row)
            data["summary"] = summary(data["rows"])
            if given.out is not None:
                given.out.write_text(json.dumps(data, indent=1) + "\n")
            print(json.dumps(row), flush=True)

    with ThreadPoolExecutor(given.lanes) as lanes:
        list(lanes.map(run, range(given.lanes)))
    print(json.dumps(data.get("summary", {}), indent=1))


if __name__ == "__main__":
    main()
