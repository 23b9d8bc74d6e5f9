"""Verdicts per second of the CPU judge, and what a C++ build costs.

Run ``python -m benchmarks.judge.judge_cpu [--out FILE] [--memory 5000]``. Kernels are correct ones
for Synthetic-L1, every one with a source of its own, judged by the strict ruleset (3 to 8 verified
calls): Triton through the interpreter, and C++ whose libraries were built before, with and without
timing. Each problem is prepared before the clock starts, by a verdict or two on other sources; what
that pass takes is given beside it. Builds are of sources never seen, the first with an empty
library folder. With ``--memory``, so many Triton verdicts are judged on end, and the resident
memory of the caller, the workers and their zygotes is noted on the way. The ratio between two
workers and one is of this run; the figures themselves move with the machine and its load. A goal is
met if any number of workers meets it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.soak.watch import below, command, processes, resident_mib
from kernelgym.judge import LocalEvaluator
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.types import Job, Kernel, Problem

WORKERS = (1, 2, 3)
"""On two cores a third worker has something to do while another waits for a process to be made."""
GOAL_PER_S = 10.0
TRITON_GOAL_PER_S = 20.0
GROWTH_MIB = 16.0
"""How much any one process may grow over a run for memory, after its first tenth."""
SAMPLES = 20
BUILD_GOAL_S = 8.0
KNOWN_GOAL_S = 0.2


def throughput(jobs: list[Job], cache: Path, workers: int, timing: bool) -> dict[str, Any]:
    """Judge the jobs once the workers know the problems; verdicts per second and their latency."""
    known = list({job.problem.id: job for job in jobs}.values())
    with LocalEvaluator(workers=workers, timing=timing, cache_dir=cache) as evaluator:
        evaluator.evaluate_many(jobs[: 2 * workers])
        started = time.perf_counter()
        for number in range(workers):  # a worker knows the problems that it has judged
            evaluator.evaluate_many(
                [Job(job.problem, renamed(job.kernel, -number - 1)) for job in known]
            )
        prepared_s = time.perf_counter() - started
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
        "calls": statistics.mean(verdict.trials for verdict in verdicts),
        "jobs": len(jobs),
        "prepared_s": prepared_s,
    }


def memory(problems: list[Problem], count: int, workers: int) -> dict[str, Any]:
    """Judge so many Triton kernels on end; resident memory of every lasting process, in MiB."""
    sources = [solve(problem, "triton") for problem in problems]

    def jobs(first: int, last: int) -> list[Job]:
        return [
            Job(problems[index % len(problems)], renamed(sources[index % len(problems)], index))
            for index in range(first, last)
        ]

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalEvaluator(workers=workers, timing=False, cache_dir=Path(folder)) as evaluator,
    ):
        evaluator.evaluate_many(jobs(0, 2 * workers))
        lasting = {process: command(process) for process in below(os.getpid(), processes())}
        # Candidates stand by beside their zygotes, whose command they bear, and go.
        step, wrong = max(1, count // SAMPLES), 0
        samples: list[dict[str, Any]] = []
        started = time.perf_counter()
        for first in range(0, count, step):
            last = min(count, first + step)
            verdicts = evaluator.evaluate_many(jobs(first, last))
            wrong += sum(not verdict.correct for verdict in verdicts)
            here = processes()
            lasting = {process: name for process, name in lasting.items() if process in here}
            samples.append(
                {
                    "verdicts": last,
                    "wall_s": round(time.perf_counter() - started, 1),
                    "caller_mib": round(resident_mib(os.getpid()), 1),
                    "mib": {str(pid): round(resident_mib(pid), 1) for pid, _ in lasting},
                }
            )
    early, late = samples[len(samples) // 10], samples[-1]
    growth = {str(pid): late["mib"][str(pid)] - early["mib"][str(pid)] for pid, _ in lasting} | {
        "caller": late["caller_mib"] - early["caller_mib"]
    }
    return {
        "verdicts": count,
        "workers": workers,
        "not_correct": wrong,
        "per_s": count / late["wall_s"],
        "processes": {
            str(pid): "worker" if "kernelgym.judge.worker" in name else "zygote"
            for (pid, _), name in lasting.items()
        },
        "growth_mib": {name: round(value, 1) for name, value in growth.items()},
        "flat": max(growth.values()) <= GROWTH_MIB,
        "samples": samples,
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
                for workers in WORKERS
            }
    best = {}
    for name in ("triton", "cpp", "cpp_timed"):
        per_s = {workers: result[name][f"workers_{workers}"]["per_s"] for workers in WORKERS}
        result[name]["two_over_one"] = per_s[2] / per_s[1]
        best[name] = max(per_s.values())
    build = result["cpp_build"]
    result["goals"] = {
        "triton_met": best["triton"] >= TRITON_GOAL_PER_S,
        "cpp_met": best["cpp"] >= GOAL_PER_S,
        "cpp_timed_met": best["cpp_timed"] >= GOAL_PER_S,
        "build_met": max(build["first_ever_s"], build["unseen_max_s"]) <= BUILD_GOAL_S,
        "known_met": build["known_max_s"] <= KNOWN_GOAL_S,
    }
    return result


def table(result: dict[str, Any]) -> str:
    """Return the result for a reader."""
    heads = "".join(f"{f'{workers} workers':>11}" for workers in WORKERS)
    lines = [f"{'verdicts per second':<28}{heads}{'median ms':>11}"]
    for name in ("triton", "cpp", "cpp_timed"):
        per_s = "".join(f"{result[name][f'workers_{n}']['per_s']:>11.1f}" for n in WORKERS)
        lines.append(f"{name:<28}{per_s}{result[name]['workers_1']['median_ms']:>11.1f}")
    if known := result.get("memory"):
        lines.append(f"{known['verdicts']} verdicts on end: MiB grown {known['growth_mib']}")
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
    parser.add_argument("--memory", type=int, default=0, help="verdicts judged on end")
    options = parser.parse_args()
    recorded = machine("torch", "triton")
    result = measure(options.jobs, options.distinct)
    if options.memory:
        problems = list(SyntheticSuite().problems(level=1))
        result["memory"] = memory(problems, options.memory, workers=2)
        result["goals"]["memory_met"] = result["memory"]["flat"]
    print(table(result))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"machine": recorded, **result}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
