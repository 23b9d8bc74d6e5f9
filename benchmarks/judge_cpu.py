"""Verdicts per second of the CPU judge, and what a C++ build costs.

Run ``python benchmarks/judge_cpu.py [--out FILE]``. Kernels are correct ones for Synthetic-L1,
every one with a source of its own, judged by the strict ruleset (3 to 6 verified calls): Triton
through the interpreter, and C++ whose libraries were built before, with and without timing.
Builds are of sources never seen, the first with an empty library folder. The ratio between two
workers and one is of this run; the figures themselves move with the machine and its load.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import machine

from kernelgym.judge import LocalEvaluator
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.types import Job, Kernel, Problem

GOAL_PER_S = 10.0
BUILD_GOAL_S = 8.0
KNOWN_GOAL_S = 0.2


def throughput(jobs: list[Job], cache: Path, workers: int, timing: bool) -> dict[str, Any]:
    """Judge the jobs once the workers are warm; verdicts per second and their latency."""
    with LocalEvaluator(workers=workers, timing=timing, cache_dir=cache) as evaluator:
        evaluator.evaluate_many(jobs[: 2 * workers])
        started = time.perf_counter()
        verdicts = evaluator.evaluate_many(jobs)
        wall_s = time.perf_counter() - started
    wrong = [verdict for verdict in verdicts if not verdict.correct]
    if wrong:
        raise SystemExit(f"a correct kernel was judged {wrong[0].status.value}: {wrong[0].message}")
    return {
        "per_s": len(jobs) / wall_s,
        "median_ms": statistics.median(verdict.wall_s for verdict in verdicts) * 1e3,
        "timed": sum(verdict.timed for verdict in verdicts),
        "jobs": len(jobs),
    }


def renamed(kernel: Kernel, number: int) -> Kernel:
    """The same kernel under a source never seen; an extension's own source stays known."""
    return Kernel(f"{kernel.source}\n\nNUMBER = {number}\n", kernel.language)


def builds(problems: list[Problem], folder: Path) -> dict[str, Any]:
    """Seconds from job to verdict for C++ sources: the first ever, others unseen, then known."""
    jobs = [Job(problem, solve(problem, "cpp")) for problem in problems]
    with LocalEvaluator(timing=False, cache_dir=folder) as evaluator:
        warm = problems[0]
        evaluator.evaluate(warm, Kernel("class ModelNew: pass", "cpp"))
        unseen = [evaluator.evaluate(job.problem, job.kernel).wall_s for job in jobs]
        known = [evaluator.evaluate(job.problem, job.kernel).wall_s for job in jobs]
    return {
        "first_ever_s": unseen[0],
        "unseen_median_s": statistics.median(unseen[1:]),
        "unseen_max_s": max(unseen[1:]),
        "known_median_s": statistics.median(known),
        "known_max_s": max(known),
    }


def measure(jobs: int, distinct: int) -> dict[str, Any]:
    """Return every number of one run."""
    suite = SyntheticSuite()
    problems = list(suite.problems(level=1))
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        result["cpp_build"] = builds(problems[:distinct], Path(folder))
        for language, timing in (("triton", False), ("cpp", False), ("cpp", True)):
            count = distinct if language == "cpp" else len(problems)
            chosen = [problems[index % count] for index in range(jobs)]
            batch = [
                Job(problem, renamed(solve(problem, language), index))
                for index, problem in enumerate(chosen)
            ]
            name = f"{language}_timed" if timing else language
            result[name] = {
                f"workers_{workers}": throughput(batch, Path(folder), workers, timing)
                for workers in (1, 2)
            }
    for name in ("triton", "cpp", "cpp_timed"):
        one, two = (result[name][f"workers_{workers}"]["per_s"] for workers in (1, 2))
        result[name]["two_over_one"] = two / one
    build = result["cpp_build"]
    result["goals"] = {
        "triton_met": result["triton"]["workers_2"]["per_s"] >= GOAL_PER_S,
        "cpp_met": result["cpp"]["workers_2"]["per_s"] >= GOAL_PER_S,
        "cpp_timed_met": result["cpp_timed"]["workers_2"]["per_s"] >= GOAL_PER_S,
        "build_met": max(build["first_ever_s"], build["unseen_max_s"]) <= BUILD_GOAL_S,
        "known_met": build["known_max_s"] <= KNOWN_GOAL_S,
    }
    return result


def table(result: dict[str, Any]) -> str:
    """Return the result for a reader."""
    lines = [f"{'verdicts per second':<28}{'1 worker':>10}{'2 workers':>11}{'median ms':>11}"]
    for name in ("triton", "cpp", "cpp_timed"):
        one, two = result[name]["workers_1"], result[name]["workers_2"]
        lines.append(
            f"{name:<28}{one['per_s']:>10.1f}{two['per_s']:>11.1f}{one['median_ms']:>11.1f}"
        )
    for name, value in result["cpp_build"].items():
        lines.append(f"C++ {name:<24}{value:>10.2f}")
    for name, met in result["goals"].items():
        lines.append(f"goal {name.removesuffix('_met')}: {'met' if met else 'NOT met'}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    parser.add_argument("--jobs", type=int, default=100, help="kernels judged per figure")
    parser.add_argument("--distinct", type=int, default=8, help="C++ sources built")
    options = parser.parse_args()
    recorded = machine("torch", "triton")
    result = measure(options.jobs, options.distinct)
    print(table(result))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"machine": recorded, **result}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
