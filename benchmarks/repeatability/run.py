"""How well verdicts on one kernel agree, and how often their interval holds what it says.

Run ``python -m benchmarks.repeatability.run [--device cuda:0] [--kernelbench-root DIR] [--out
FILE]``. Kernels of about 20 us, 200 us, 2 ms and 20 ms (on an H200) are judged 20 times each, in
rounds, every verdict with processes and inputs of its own. Told are the mean and the coefficient of
variation of the speedup, and how often its 95 % interval holds the grand mean. Beside it, in the
same rounds, KernelBench's own evaluation of the same kernels (100 timed trials, a process each; its
reference time is that of its excessive-speedup check). Ours runs under `strict` without evidence
and other kinds of inputs, which are not what is looked at. Finished rounds are kept in FILE;
``--resume FILE`` goes on from there. Exit code 1: some kernel stayed untimed; 3: the budget ended
first.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import gpu, machine
from benchmarks.repeatability.problems import SIZES, Size
from kernelgym.judge import LocalEvaluator
from kernelgym.rulesets import RULESETS, Ruleset
from kernelgym.types import Evaluator, Job, Verdict

KERNELBENCH = "benchmarks.repeatability.kernelbench"
KERNELBENCH_S = 300.0
NORMAL_95 = 1.96

RULES = dataclasses.replace(RULESETS["strict"], require_custom_kernel=False, distributions=())


def between_process(rules: Ruleset, on_cpu: bool) -> float:
    """Return the standard deviation that intervals are widened by."""
    return rules.timing.between_process if on_cpu else rules.timing.device_between_process


class Untimed(Exception):
    """One side did not time a kernel; says why."""


def entry(verdict: Verdict) -> dict[str, Any]:
    """Return what is kept of one verdict.

    Raises:
        Untimed: If it has no timing.
    """
    if verdict.timing is None:
        raise Untimed(f"{verdict.status.value}: {verdict.message}")
    kept = dataclasses.asdict(verdict.timing)
    kept["findings"] = [finding.code for finding in verdict.findings]
    return {**kept, "isolation": verdict.isolation, "wall_s": round(verdict.wall_s, 2)}


def ask_ours(evaluator: Evaluator, job: Job) -> dict[str, Any]:
    """Have a kernel judged and timed.

    Raises:
        Untimed: If it is not timed.
    """
    return entry(evaluator.evaluate(job.problem, job.kernel))


def variation(values: Sequence[float]) -> float:
    """Return the coefficient of variation; 0.0 of a single value."""
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


def narrowed(end: float, speedup: float, term: float) -> float:
    """Return an end of the interval as it was before `term` widened it."""
    half = abs(math.log(end / speedup))
    own = math.sqrt(max(0.0, half**2 - (NORMAL_95 * term) ** 2))
    return speedup * math.exp(math.copysign(own, end - speedup))


def coverage(entries: Sequence[dict[str, Any]], term: float, wanted: float) -> dict[str, float]:
    """Return how often the interval, widened by `wanted` in place of `term`, holds the mean."""
    mean = statistics.fmean(e["speedup"] for e in entries)
    above = both = 0
    for e in entries:
        low, high = (narrowed(e[f"speedup_{end}"], e["speedup"], term) for end in ("low", "high"))
        extra = NORMAL_95 * wanted
        low = e["speedup"] * math.exp(-math.hypot(math.log(e["speedup"] / low), extra))
        high = e["speedup"] * math.exp(math.hypot(math.log(high / e["speedup"]), extra))
        above += low <= mean
        both += low <= mean <= high
    return {"low": above / len(entries), "both": both / len(entries)}


def unexplained(entries: Sequence[dict[str, Any]], term: float) -> float:
    """Return the spread between verdicts beyond what their own intervals explain, relative."""
    if len(entries) < 2:
        return 0.0
    logs = [math.log(e["speedup"]) for e in entries]
    within = []
    for e in entries:
        low, high = (narrowed(e[f"speedup_{end}"], e["speedup"], term) for end in ("low", "high"))
        within.append((math.log(high / low) / (2 * NORMAL_95)) ** 2)
    return math.sqrt(max(0.0, statistics.variance(logs) - statistics.fmean(within)))


def summary(
    size: Size, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], term: float
) -> dict[str, Any]:
    """Return everything said of one size."""
    speedups = [e["speedup"] for e in ours]
    result: dict[str, Any] = {
        "size": size.name,
        "runs": len(ours),
        "kernel_ms": statistics.fmean(e["kernel_ms"] for e in ours),
        "speedup": statistics.fmean(speedups),
        "smallest": min(speedups),
        "largest": max(speedups),
        "variation": variation(speedups),
        "goal": size.goal_cv,
        "goal_met": variation(speedups) <= size.goal_cv,
        "samples": statistics.median(e["samples"] for e in ours),
        "coverage": coverage(ours, term, term),
        "coverage_unwidened": coverage(ours, term, 0.0),
        "between_process": unexplained(ours, term),
        "wall_s": statistics.fmean(e["wall_s"] for e in ours),
    }
    if theirs:
        found = [e["reference_ms"] / e["kernel_ms"] for e in theirs]
        result["kernelbench"] = {
            "runs": len(theirs),
            "kernel_ms": statistics.fmean(e["kernel_ms"] for e in theirs),
            "speedup": statistics.fmean(found),
            "smallest": min(found),
            "largest": max(found),
            "variation": variation(found),
            "wall_s": statistics.fmean(e["wall_s"] for e in theirs),
        }
    return result


def ask_kernelbench(root: Path, device: str, size: Size, caches: Path) -> dict[str, Any]:
    """Have KernelBench evaluate a size's kernel in a fresh process.

    Raises:
        Untimed: If it does not find the kernel correct, or fails.
    """
    job = size.job(on_cpu=False)
    request = {"problem": job.problem.source, "kernel": job.kernel.source}
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", KERNELBENCH, str(root.absolute()), device],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=KERNELBENCH_S,
        env={**os.environ, "TRITON_CACHE_DIR": str(caches)},
    )
    if done.returncode or not done.stdout:
        raise Untimed(f"KernelBench's evaluation failed: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if not answer["correct"] or min(answer["kernel_ms"], answer["reference_ms"]) <= 0:
        raise Untimed(f"KernelBench did not time the kernel: {answer} {done.stderr[-2000:]}")
    return {**answer, "wall_s": round(time.monotonic() - started, 2)}


class Rounds:
    """Runs both sides in turn and keeps what they said.

    Args:
        options: Of the command line.
        runs: What was kept before, by size; added to.
    """

    def __init__(self, options: argparse.Namespace, runs: dict[str, Any]) -> None:
        self._options, self._runs = options, runs
        self._sizes = [SIZES[name] for name in options.sizes.split(",")]
        self._beside = options.kernelbench_sizes.split(",") if options.kernelbench_root else []

    def run(self, evaluator: Evaluator, caches: Path) -> bool:
        """Run one round; says whether another is needed."""
        options = self._options
        left = False
        for size in self._sizes:
            job = size.job(options.device == "cpu")
            ours = partial(ask_ours, evaluator, job)
            left |= self._attempt(size, "kernelgym", options.runs, ours)
            if size.name in self._beside:
                root, device = options.kernelbench_root, options.device
                theirs = partial(ask_kernelbench, root, device, size, caches)
                left |= self._attempt(size, "kernelbench", options.kernelbench_runs, theirs)
        return left

    def _attempt(
        self, size: Size, side: str, wanted: int, ask: Callable[[], dict[str, Any]]
    ) -> bool:
        """Ask a side once more, if wanted; says whether it is to be asked again."""
        kept = self._runs.setdefault(size.name, {"kernelgym": [], "kernelbench": [], "untimed": []})
        tried = len(kept[side]) + sum(failure["by"] == side for failure in kept["untimed"])
        if tried >= wanted:
            return False
        try:
            found = ask()
        except Untimed as why:
            kept["untimed"].append({"by": side, "why": str(why)})
            print(f"{size.name:<7}{side:<13}untimed: {why}", flush=True)
        else:
            kept[side].append(found)
            # Ours is the median of ratios, not the ratio of medians.
            speedup = found.get("speedup", found["reference_ms"] / found["kernel_ms"])
            interval = ""
            if "speedup_low" in found:
                interval = f"{found['speedup_low']:.4f} to {found['speedup_high']:.4f}"
            print(
                f"{size.name:<7}{side:<13}{len(kept[side]):>3}  "
                f"{speedup:.4f}  {interval:<18}"
                f"{found['kernel_ms'] * 1e3:>10.1f} us {found['wall_s']:>6.1f} s",
                flush=True,
            )
        return bool(tried + 1 < wanted)


def measure(options: argparse.Namespace, runs: dict[str, Any], recorded: dict[str, Any]) -> bool:
    """Add rounds to `runs`, written as they end; says whether there was time for all of them."""
    rounds = Rounds(options, runs)
    deadline = time.monotonic() + options.budget_s
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalEvaluator(options.device, RULES, cache_dir=folder) as evaluator,
    ):
        for name in options.sizes.split(","):  # builds and first contacts are not looked at
            job = SIZES[name].job(options.device == "cpu")
            evaluator.evaluate(job.problem, job.kernel)
        while time.monotonic() < deadline:
            left = rounds.run(evaluator, Path(folder) / "kernelbench")
            write(options, runs, recorded)
            if not left:
                return True
    return False


def report(options: argparse.Namespace, runs: dict[str, Any]) -> dict[str, Any]:
    """Return the summaries of what has been run."""
    term = between_process(RULES, options.device == "cpu")
    rows = [
        summary(SIZES[name], kept["kernelgym"], kept["kernelbench"], term)
        for name, kept in runs.items()
        if kept["kernelgym"]
    ]
    return {
        "device": options.device,
        "ruleset": RULES.label,
        "widened_by": term,
        "sizes": rows,
        "untimed": {name: len(kept["untimed"]) for name, kept in runs.items() if kept["untimed"]},
    }


def write(options: argparse.Namespace, runs: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Write summaries and runs, if a file is wanted."""
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        result = {"machine": recorded, **report(options, runs), "runs": runs}
        options.out.write_text(json.dumps(result, indent=2) + "\n")


def table(result: dict[str, Any]) -> str:
    """Return the summaries for a reader."""
    lines = [
        f"{'size':<7}{'by':<13}{'runs':>5}{'kernel us':>11}{'speedup':>9}{'variation':>11}"
        f"{'low <= mean':>13}{'both':>6}{'unwidened':>11}{'between':>9}{'wall s':>8}"
    ]
    for row in result["sizes"]:
        met = "" if row["goal_met"] else f"  above the goal of {row['goal']:.1%}"
        lines.append(
            f"{row['size']:<7}{'kernelgym':<13}{row['runs']:>5}{row['kernel_ms'] * 1e3:>11.1f}"
            f"{row['speedup']:>9.4f}{row['variation']:>11.3%}{row['coverage']['low']:>13.0%}"
            f"{row['coverage']['both']:>6.0%}{row['coverage_unwidened']['both']:>11.0%}"
            f"{row['between_process']:>9.3%}{row['wall_s']:>8.1f}{met}"
        )
        if theirs := row.get("kernelbench"):
            lines.append(
                f"{'':<7}{'KernelBench':<13}{theirs['runs']:>5}{theirs['kernel_ms'] * 1e3:>11.1f}"
                f"{theirs['speedup']:>9.4f}{theirs['variation']:>11.3%}{'':>39}"
                f"{theirs['wall_s']:>8.1f}"
            )
    for name, count in result["untimed"].items():
        lines.append(f"{name}: {count} left untimed")
    lines.append(f"intervals are widened by {result['widened_by']:.2%} between processes")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu in cut sizes")
    parser.add_argument("--runs", type=int, default=20, help="verdicts for each size")
    parser.add_argument("--sizes", default=",".join(SIZES), help="some of them, with commas")
    parser.add_argument("--kernelbench-root", type=Path, help="a checkout, to run beside")
    parser.add_argument("--kernelbench-sizes", default="20us,200us", help="sizes it gets")
    parser.add_argument("--kernelbench-runs", type=int, default=8, help="its runs for each size")
    parser.add_argument("--budget-s", type=float, default=3600.0, help="begin no round after that")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    parser.add_argument("--resume", type=Path, help="go on from such a file")
    options = parser.parse_args()
    if unknown := set(f"{options.sizes},{options.kernelbench_sizes}".split(",")) - set(SIZES):
        parser.error(f"no such size: {', '.join(sorted(unknown))}; known: {', '.join(SIZES)}")
    if options.device == "cpu" and options.kernelbench_root:
        parser.error("KernelBench evaluates on CUDA devices only")
    recorded = {**machine("torch", "triton"), **gpu(options.device)}
    runs: dict[str, Any] = {}
    if options.resume:
        kept = json.loads(options.resume.read_text())
        if (kept["device"], kept["ruleset"]) != (options.device, RULES.label):
            parser.error(f"{options.resume} holds runs of another device or ruleset")
        runs, recorded = kept["runs"], kept["machine"]
    complete = measure(options, runs, recorded)
    write(options, runs, recorded)
    print("\n" + table(report(options, runs)))
    if any(kept["untimed"] for kept in runs.values()):
        return 1
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())
