"""What the verdict service costs over a local evaluator, how fast it is, and how fair.

Run ``python -m benchmarks.service.cost [--device cpu|cuda:0|all] [--parts PARTS] [--out FILE]``.

`verdicts`: the same kernels through `LocalEvaluator` and through `RemoteEvaluator` on loopback, in
turns: one after the other (what a verdict takes longer, as a whole and outside of judging) and all
at once (throughput). On the CPU the sample problem; on a GPU sixteen kernels of KernelBench L1/36,
by four workers.
`stream`: groups of eight answers to each of four KernelBench problems, half of them wrong, on all
GPUs of the machine, through both.
`scripted`: verdicts a second of a service whose evaluator takes no time, sent as one sequence and
one by one by 32 threads.
`fairness`: how long ten verdicts of one tenant take, while nothing else waits, and while another
tenant has 5,000 jobs queued.

With ``--against ray``, `verdicts` and `stream` compare with `RayEvaluator` over a cluster that is
started on this machine, in place of the service.

On a GPU the two sides run one after the other, since their workers would share its memory.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.judge.judge_throughput import judge_stream, read_case, unseen, warm_up
from benchmarks.machine import gpu, machine
from benchmarks.service.servers import make_keys, real, scripted, wait_for_queue
from kernelgym import RayEvaluator, RemoteEvaluator
from kernelgym.judge import LocalEvaluator
from kernelgym.suites import get_problem
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Evaluator, Job, Kernel

PARTS = ("verdicts", "stream", "scripted", "fairness")
THREADS = 32
QUEUED = 5000


def report(options: argparse.Namespace, data: dict[str, Any], part: str, found: Any) -> None:
    """Keep and print what was measured."""
    data[part] = found
    print(part, json.dumps(found), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(data, indent=1) + "\n")


@contextlib.contextmanager
def local_side(options: argparse.Namespace, folder: Path) -> Iterator[Evaluator]:
    """Open a local evaluator."""
    several = options.device == "all"
    with LocalEvaluator(
        "cpu" if several else options.device,
        workers=options.workers,
        timing=not options.untimed,
        devices="all" if several else None,
        cache_dir=folder / "local",
    ) as evaluator:
        yield evaluator


@contextlib.contextmanager
def service_side(options: argparse.Namespace, folder: Path) -> Iterator[Evaluator]:
    """Open the evaluator of a service that judges as the local one does."""
    (folder / "Sample").mkdir(exist_ok=True)
    (folder / "Sample" / "1_sample.py").write_text(SAMPLE_PROBLEM.source)
    suites = (str(folder / "Sample"),) if options.device == "cpu" else ("KernelBench",)
    settings = ("--device", options.device, "--workers", str(options.workers))
    state = ("--state", str(folder / "state"))
    with (
        real(*state, *settings, "--suites", *suites) as (_, url),
        RemoteEvaluator(url, timing=not options.untimed) as remote,
    ):
        yield remote


@contextlib.contextmanager
def ray_side(options: argparse.Namespace, folder: Path) -> Iterator[Evaluator]:
    """Open an evaluator over a Ray cluster on this machine, which ends with it."""
    device = "cpu" if options.device == "cpu" else "cuda"
    timing = not options.untimed
    with RayEvaluator("local", device, workers=options.workers, timing=timing) as evaluator:
        yield evaluator


OTHERS = {"service": service_side, "ray": ray_side}
"""What is compared with a local evaluator, by ``--against``."""


def in_turns(
    options: argparse.Namespace, measure: Callable[[Evaluator, str], dict[str, Any]]
) -> dict[str, Any]:
    """Return what both sides measure in each round, as lists by side."""
    sides = {"local": local_side, options.against: OTHERS[options.against]}
    found: dict[str, Any] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if options.device == "cpu":
            opened = {
                name: stack.enter_context(side(options, Path(folder)))
                for name, side in sides.items()
            }
            for number in range(options.rounds):
                for name in (list(sides), list(sides)[::-1])[number % 2]:
                    found[name].append(measure(opened[name], f"{name} {number}"))
        else:
            for name, side in sides.items():
                with side(options, Path(folder)) as evaluator:
                    for number in range(options.rounds):
                        found[name].append(measure(evaluator, f"{name} {number}"))
                        print(name, json.dumps(found[name][-1]), flush=True)
    return found


def run_verdicts(options: argparse.Namespace) -> dict[str, Any]:
    """Measure single verdicts and many at once on both sides."""
    if options.device == "cpu":
        served = dataclasses.replace(SAMPLE_PROBLEM, id="Sample/1_sample")  # as of its folder
        base = Job(served, SAMPLE_KERNELS["triton"])
    else:
        base = read_case(options.case, options.kernelbench_root)

    def jobs(mark: str, count: int) -> list[Job]:
        return [Job(base.problem, unseen(base.kernel, f"{mark} {n}")) for n in range(count)]

    def measure(evaluator: Evaluator, mark: str) -> dict[str, Any]:
        workers = evaluator.capabilities.workers
        for verdict in evaluator.evaluate_many(jobs(f"first {mark}", workers)):
            if not verdict.correct:
                print(f"{mark}: {verdict.status.value}: {verdict.message[:300]}", flush=True)
        alone, outside = [], []
        for job in jobs(f"alone {mark}", options.alone):
            started = time.perf_counter()
            verdict = evaluator.evaluate(job.problem, job.kernel)
            alone.append(time.perf_counter() - started)
            outside.append(alone[-1] - verdict.wall_s)
        started = time.perf_counter()
        verdicts = evaluator.evaluate_many(jobs(f"many {mark}", options.many))
        return {
            "alone_s": alone,
            "outside_s": outside,
            "many_per_s": options.many / (time.perf_counter() - started),
            "many": dict(Counter(verdict.status.value for verdict in verdicts)),
            "messages": sorted({each.message[:300] for each in verdicts if not each.correct}),
        }

    found = in_turns(options, measure)
    alone, outside = (
        {
            side: statistics.median(each for row in rows for each in row[name])
            for side, rows in found.items()
        }
        for name in ("alone_s", "outside_s")
    )
    other = options.against
    rate = {
        side: statistics.median(row["many_per_s"] for row in rows) for side, rows in found.items()
    }
    return {
        **{"workers": options.workers, "many": options.many, "timed": not options.untimed},
        "problem": base.problem.id,
        **{"alone_s": alone, "outside_s": outside},
        "added_ms": 1e3 * (alone[other] - alone["local"]),
        "added_outside_ms": 1e3 * (outside[other] - outside["local"]),
        "many_per_s": rate,
        "throughput_lost": 1.0 - rate[other] / rate["local"],
        "rounds": found,
    }


def run_stream(options: argparse.Namespace) -> dict[str, Any]:
    """Measure a stream of groups on both sides."""

    def measure(evaluator: Evaluator, mark: str) -> dict[str, Any]:
        warm_up(evaluator, options.kernelbench_root)
        return judge_stream(evaluator, options.kernelbench_root, options.turns, mark)

    found, other = in_turns(options, measure), options.against
    rate = {
        side: statistics.median(row["per_hour"] for row in rows) for side, rows in found.items()
    }
    return {"per_hour": rate, "lost": 1.0 - rate[other] / rate["local"], "rounds": found}


def run_scripted(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the verdicts a second of a service whose evaluator takes no time."""
    problem = get_problem("Synthetic/L1/1")

    def job(mark: str, number: int) -> Job:
        return Job(problem, Kernel(f"# {mark} {number}\n{'x' * 2000}", "triton"))

    found: dict[str, Any] = {"many": options.scripted, "rounds": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        scripted(Path(folder) / "state") as (_, url),
        RemoteEvaluator(url) as remote,
        ThreadPoolExecutor(THREADS) as threads,
    ):
        for number in range(options.rounds):
            started = time.perf_counter()
            remote.evaluate_many([job(f"many {number}", n) for n in range(options.scripted)])
            sequence_s = time.perf_counter() - started
            jobs = [job(f"single {number}", n) for n in range(options.scripted // 4)]
            started = time.perf_counter()
            list(threads.map(lambda each: remote.evaluate(each.problem, each.kernel), jobs))
            single_s = time.perf_counter() - started
            found["rounds"].append(
                {
                    "sequence_per_s": options.scripted / sequence_s,
                    "single_per_s": len(jobs) / single_s,
                }
            )
    for name in ("sequence_per_s", "single_per_s"):
        found[name] = statistics.median(row[name] for row in found["rounds"])
    return found


def run_fairness(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one tenant's ten verdicts, alone and beside another's queue."""
    problem, workers = get_problem("Synthetic/L1/1"), 2
    with tempfile.TemporaryDirectory() as folder:
        keys = make_keys(Path(folder) / "keys.yaml", "small", "large")
        with (
            scripted(
                Path(folder) / "state",
                Path(folder) / "keys.yaml",
                options.verdict_s,
                workers,
            ) as (_, url),
            RemoteEvaluator(url, keys["small"]) as small,
            RemoteEvaluator(url, keys["large"]) as large,
        ):

            def ten(mark: str) -> float:
                jobs = [Job(problem, Kernel(f"# {mark} {n}\n", "triton")) for n in range(10)]
                started = time.perf_counter()
                small.evaluate_many(jobs)
                return time.perf_counter() - started

            ten("first")
            idle = [ten(f"idle {number}") for number in range(options.rounds)]
            queue = [
                large.submit(Job(problem, Kernel(f"# queued {n}\n", "triton")))
                for n in range(QUEUED)
            ]
            queue[0].result()
            wait_for_queue(url, keys["large"], QUEUED * 9 // 10)
            beside = [ten(f"beside {number}") for number in range(options.rounds)]
            left = sum(not each.done() for each in queue)
            for each in queue:
                each.cancel()
    return {
        **{"verdict_s": options.verdict_s, "workers": workers, "queued": QUEUED},
        **{"idle_s": statistics.median(idle), "beside_s": statistics.median(beside)},
        "allowed_s": 2.0 * statistics.median(idle) + options.verdict_s,
        "longest_beside_s": max(beside),
        "queued_at_the_end": left,
    }


def main() -> int:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--parts", default="verdicts,scripted,fairness")
    parser.add_argument("--against", default="service", choices=tuple(OTHERS))
    parser.add_argument("--kernelbench-root", type=Path)
    parser.add_argument("--case", default="l1_036_rms_norm", help="kernel judged on a GPU")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="5 on the CPU and 1 on GPUs if not given")
    parser.add_argument("--alone", type=int, default=10, help="verdicts one after the other")
    parser.add_argument("--many", type=int, default=48, help="verdicts at once")
    parser.add_argument("--turns", type=int, default=2, help="turns of a stream for each GPU")
    parser.add_argument("--scripted", type=int, default=4000, help="scripted verdicts a round")
    parser.add_argument("--untimed", action="store_true", help="judge correctness only")
    parser.add_argument("--verdict-s", type=float, default=0.05)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.rounds = options.rounds or (5 if options.device == "cpu" else 1)
    here = gpu("cuda:0" if options.device == "all" else options.device)
    cores = {"cores": len(os.sched_getaffinity(0))}  # of which taskset may leave a few
    data: dict[str, Any] = {
        "machine": machine("torch", "triton", "fastapi", "uvicorn", "ray") | cores | here
    }
    runs = {
        "verdicts": run_verdicts,
        "stream": run_stream,
        "scripted": run_scripted,
        "fairness": run_fairness,
    }
    for part in options.parts.split(","):
        report(options, data, part, runs[part](options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
