"""How many GPU verdicts a host bears: kernels that take the device no time, judged by many workers.

Run ``python -m benchmarks.judge.host_capacity [--device cuda:0] [--workers 1,2,4,8,12] [--out
FILE]``.

GPUs of one host share its driver, which makes and ends contexts one after the other, whichever GPU
they are for. So what one GPU's workers reach with kernels that leave the device idle, and without
timing, is what the host's driver and processors bear, on however many GPUs the work is done: as
many verdicts as this on several GPUs are the most that there can be. Kernels are right ones for
small problems of the Synthetic suite, every one unseen, judged by both rulesets.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.judge.judge_throughput import mean_stages, outcomes, unseen
from benchmarks.machine import gpu, machine
from kernelgym.judge import LocalEvaluator
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import solve
from kernelgym.types import Job

PROBLEM = "Synthetic/L1/3"
RULESETS = ("kernelbench", "strict")
EACH = 12
"""Kernels for each worker, beside four that warm it up and do not count."""


def capacity(device: str, ruleset: str, workers: int) -> dict[str, Any]:
    """Return how many verdicts so many workers give in a second."""
    problem = get_problem(PROBLEM)
    kernel = solve(problem, "triton")

    def jobs(name: str, count: int) -> list[Job]:
        return [Job(problem, unseen(kernel, f"{name} {number}")) for number in range(count)]

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalEvaluator(
            device, ruleset, workers=workers, timing=False, cache_dir=folder
        ) as evaluator,
    ):
        for number in range(2):
            evaluator.evaluate_many(jobs(f"warm {number}", 2 * workers))
        started = time.perf_counter()
        verdicts = evaluator.evaluate_many(jobs("unseen", EACH * workers))
        wall_s = time.perf_counter() - started
    found = outcomes(verdicts)
    return {
        "ruleset": ruleset,
        "workers": workers,
        "per_s": round(len(verdicts) / wall_s, 2),
        "statuses": found["statuses"],
        "stages": {name: round(value, 4) for name, value in mean_stages(verdicts).items()},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workers", default="1,2,4,8,12", help="how many at a time")
    parser.add_argument("--rulesets", default=",".join(RULESETS))
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    recorded, rows = {**machine("torch", "triton"), **gpu(options.device)}, []
    for ruleset in options.rulesets.split(","):
        for workers in map(int, options.workers.split(",")):
            rows.append(capacity(options.device, ruleset, workers))
            print(rows[-1], flush=True)
            if options.out:
                result = {"machine": recorded, "problem": PROBLEM, "capacity": rows}
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
