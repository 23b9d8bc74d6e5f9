"""Record how often intervals measured beside spinning processes hold the quiet speedup.

Run ``python -m benchmarks.judge.interval_coverage [--rounds 10] [--spinning 2] [--out FILE]``.
Kernels are short and long ones, in C++ and of torch's operators. Each gets two cores, and as many
kernels are measured at once as the machine has pairs of cores. A round judges a kernel once quietly
and once while other processes spin on its two cores, so both kinds of verdicts see the same drift
of the machine. The quiet speedup of a kernel is the median of its quiet verdicts that do not say
`host_busy` (`quiet_verdicts` of them), or of all timed ones if each says so.

A verdict beside spinning processes is good if it is untimed or if its interval holds that speedup;
the goal is 90 % of them. The verdicts that have a time are counted apart, so that a rule that
leaves everything untimed can be told from one that measures.

Use a machine that is idle else. On one that others use, ``--real-time`` gives the processes of the
quiet verdicts real-time priority (SCHED_RR): other programs get the processors only while the judge
needs none. Threads of one parallel region wait for each other under it, so set OMP_NUM_THREADS=1
there. `processors_used` is the mean number of busy processors of the machine during a verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.search.busy_host import spinning
from kernelgym import Kernel, LocalEvaluator, Problem
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.types import Verdict
from kernelgym.verdict import HOST_BUSY
from kernelgym_train.mcgs.examples import EXAMPLES

__all__ = ["GOAL", "coverage", "kernels"]

GOAL = 0.9
"""Share of verdicts beside spinning processes that must be untimed or hold the quiet speedup."""
_REST_S = 0.3  # after a verdict, the worker that made it prepares processes
_SHORT_CHAIN = "Synthetic/L2/273"  # one of the demonstration's, 40 us a call
_TORCH = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) * x


def get_inputs():
    return [torch.randn({rows}, 1024)]


def get_init_inputs():
    return []
"""
_TORCH_KERNEL = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * x * (0.5 * torch.erf(x * 0.7071067811865476) + 0.5)
"""


def kernels() -> dict[str, tuple[Problem, Kernel]]:
    """Return problems and correct kernels by name: short and long ones, in C++ and torch."""
    short = SyntheticSuite().get(_SHORT_CHAIN)
    made = {"cpp_short": (short, solve(short, "cpp"))}
    made |= {f"cpp_{name}": EXAMPLES[name] for name in ("softmax", "layernorm")}
    for name, rows in (("torch_short", 4), ("torch_long", 2048)):
        source = _TORCH.format(rows=rows)
        problem = Problem(f"coverage/{name}", "coverage", 0, name, source, name)
        made[name] = (problem, Kernel(_TORCH_KERNEL, "cpp"))
    return made


def rules() -> Ruleset:
    """Return the strict rules, by which a kernel of torch's operators is timed, too."""
    return replace(find_ruleset("strict"), require_custom_kernel=False, hard_findings=())


def coverage(rows: Sequence[dict[str, Any]], quiet: float) -> dict[str, Any]:
    """Return counts of verdicts beside spinning processes.

    Args:
        rows: Rows of the verdicts of one kernel.
        quiet: Its quiet speedup.
    """
    timed = [row for row in rows if row["speedup"]]
    held = sum(row["low"] <= quiet <= row["high"] for row in timed)
    return {
        "verdicts": len(rows),
        "timed": len(timed),
        "held": held,
        "busy": sum(row["host_busy"] for row in rows),
        "good_share": (held + len(rows) - len(timed)) / len(rows),
        "width": statistics.median(r["high"] / r["low"] for r in timed) if timed else None,
    }


@contextmanager
def _real_time(wanted: bool) -> Iterator[None]:
    """Give the processes that are started in the block real-time priority, if that is wanted."""
    if wanted:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    try:
        yield
    finally:
        if wanted:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _busy_s() -> float:
    """Return the processor seconds that all programs have used since the machine started."""
    user, nice, system, *_ = map(int, Path("/proc/stat").read_text().split()[1:5])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def _judged(evaluator: LocalEvaluator, problem: Problem, kernel: Kernel) -> dict[str, Any]:
    used, begun = _busy_s(), time.monotonic()
    verdict = evaluator.evaluate(problem, kernel, seed=os.urandom(16).hex())
    used, wall_s = _busy_s() - used, time.monotonic() - begun
    return _row(verdict) | {"processors_used": round(used / wall_s, 2)}


def _row(verdict: Verdict) -> dict[str, Any]:
    if not verdict.correct:
        raise RuntimeError(f"a correct kernel is {verdict.status.value}: {verdict.message}")
    timing = verdict.timing
    return {
        "speedup": timing.speedup if timing else None,
        "low": timing.speedup_low if timing else None,
        "high": timing.speedup_high if timing else None,
        "kernel_ms": timing.kernel_ms if timing else None,
        "host_busy": any(finding.code == HOST_BUSY for finding in verdict.findings),
        "wall_s": round(verdict.wall_s, 2),
    }


def measured(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Judge one kernel in turns, quietly and beside spinning processes; return its results."""
    problem, kernel = kernels()[name]
    quiet: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    with LocalEvaluator(ruleset=rules()) as usual, LocalEvaluator(ruleset=rules()) as alone:
        usual.evaluate(problem, kernel)
        with _real_time(given.real_time):  # workers start at the first verdict
            alone.evaluate(problem, kernel)
        until = time.monotonic() + given.seconds
        while len(quiet) < given.rounds and (time.monotonic() < until or not quiet):
            time.sleep(_REST_S)
            quiet.append(_judged(alone, problem, kernel))
            time.sleep(_REST_S)
            with spinning(given.spinning):
                beside.append(_judged(usual, problem, kernel))
            print(len(quiet), name, quiet[-1], beside[-1], flush=True)
    speedups = [row["speedup"] for row in quiet if row["speedup"] and not row["host_busy"]]
    undisturbed = len(speedups)
    if not speedups:  # the median of pairs that did not wait, which other programs disturb less
        speedups = [row["speedup"] for row in quiet if row["speedup"]]
    if not speedups:
        raise RuntimeError(f"no verdict on {name} has a time: other programs use this machine")
    middle = statistics.median(speedups)
    return {
        "quiet_speedup": middle,
        "quiet_verdicts": undisturbed,
        "quiet_lowest": min(speedups),
        "quiet_highest": max(speedups),
        "quiet": coverage(quiet, middle),
        "beside": coverage(beside, middle),
        "verdicts": {"quiet": quiet, "beside": beside},
    }


def _on_cores(name: str, cores: tuple[int, int], given: argparse.Namespace) -> dict[str, Any]:
    """Return one kernel's results, measured by a process that may use two cores only."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        options = ["--rounds", str(given.rounds), "--spinning", str(given.spinning)]
        options += ["--seconds", str(given.seconds), *["--real-time"][: given.real_time]]
        command = [sys.executable, "-m", "benchmarks.judge.interval_coverage", *options]
        command += ["--only", name, "--out", str(out)]
        # A cache of its own: the device lock in it would have the processes wait for each other.
        variables = os.environ | {"KERNELGYM_CACHE": str(Path(folder) / "cache")}
        pinned = ["taskset", "-c", ",".join(map(str, cores))]
        subprocess.run([*pinned, *command], env=variables, check=True)
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def main(argv: Sequence[str] | None = None) -> None:
    """Judge kernels in turns, quietly and beside spinning processes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--spinning", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="no round begins after these")
    parser.add_argument("--real-time", action="store_true", help="priority of quiet verdicts")
    parser.add_argument("--only", choices=list(kernels()), help="measure one kernel, in here")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    if given.only:
        given.out.write_text(json.dumps(measured(given.only, given)))
        return
    cores = sorted(os.sched_getaffinity(0))
    pairs: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    places = [(cores[n], cores[n + 1]) for n in range(0, len(cores) - 1, 2)]
    for place in places:
        pairs.put(place)

    def run(name: str) -> dict[str, Any]:
        place = pairs.get()
        try:
            return _on_cores(name, place, given)
        finally:
            pairs.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        results = dict(zip(kernels(), pool.map(run, kernels()), strict=True))
    counts = [result["beside"] for result in results.values()]
    total = sum(count["verdicts"] for count in counts)
    good = sum(count["good_share"] * count["verdicts"] for count in counts)
    data = {
        "machine": machine("torch"),
        "cores_of_a_kernel": 2,
        "kernels_at_once": min(len(places), len(results)),
        "spinning": given.spinning,
        "quiet_has_real_time_priority": given.real_time,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
        "verdicts": total,
        "timed": sum(count["timed"] for count in counts),
        "good_share": good / total,
        "goal": GOAL,
        "kernels": results,
    }
    text = json.dumps(data, indent=1) + "\n"
    if given.out:
        given.out.write_text(text)
    for name, result in results.items():
        print(name, result["quiet_speedup"], result["quiet"], result["beside"])
    print(f"{good:.0f} of {total} verdicts beside {given.spinning} spinning processes are good")


if __name__ == "__main__":
    main()
