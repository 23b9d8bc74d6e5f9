"""A reference judged as its own kernel, again and again: how often is it called faster?

It is exactly as fast as itself, so a comparison of two means calls it faster about every second
time, by noise alone. The lower end of a 95 % interval should lie above 1 one time in forty.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.runs.shows import Show, read_rows
from kernelgym.benchmark.numbers.intervals import wilson
from kernelgym.cli.judging import judge
from kernelgym.judge import LocalEvaluator
from kernelgym.records.jsonlines import append_line
from kernelgym.types import Job, Kernel, Problem

__all__ = ["measure_noise", "refuse_by_strict", "summary"]

_CALLED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "faster": lambda row: row["speedup"] > 1.0,
    "certainly_faster": lambda row: row["speedup_low"] > 1.0,
    "certainly_slower": lambda row: row["speedup_high"] < 1.0,
}
"""What a reference may be called beside itself."""
_BLOCK = 10
"""Verdicts on one problem before the next one's turn: a stopped run says something of all."""


def as_kernel(problem: Problem, language: str) -> Kernel:
    """Return a problem's own module as a kernel."""
    return Kernel(f"{problem.source}\n\nModelNew = Model\n", language)


def measure_noise(show: Show, evaluator: LocalEvaluator, share: float) -> None:
    """Judge references under ruleset kernelbench until a share of the time has passed."""
    choice, path = show.choice, show.work / "noise.jsonl"
    problems = show.problems(choice.noise)
    there = [row["problem"] for row in read_rows(path)]
    rounds = range(0, choice.times, _BLOCK)
    jobs = [
        Job(problem, as_kernel(problem, choice.noise_language))
        for first in rounds
        for problem in problems
        for number in range(first, min(first + _BLOCK, choice.times))
        if number >= there.count(problem.id)
    ]
    show.say(f"noise: {len(jobs)} verdicts to go")

    def in_time() -> Any:
        for job in jobs:
            if show.left(share) <= 0:
                return
            yield job

    for index, verdict in evaluator.evaluate_iter(in_time()):
        row: dict[str, Any] = {"problem": jobs[index].problem.id, "status": verdict.status.value}
        if verdict.timing is not None:
            timing = verdict.timing
            names = ("speedup", "speedup_low", "speedup_high", "kernel_ms", "reference_ms")
            row |= {name: getattr(timing, name) for name in names}
        else:
            row["message"] = verdict.message[:500]
        append_line(path, row)
        write_noise(show)
    show.say("noise: done" if show.left(share) > 0 else "noise: its time is up")


def refuse_by_strict(show: Show, evaluator: LocalEvaluator) -> None:
    """Judge each reference once under ruleset strict, which should refuse it."""
    path = show.work / "noise_strict.jsonl"
    there = {row["problem"] for row in read_rows(path)}
    for problem in show.problems(show.choice.noise):
        if problem.id in there:
            continue
        verdict = judge(evaluator, problem, as_kernel(problem, show.choice.noise_language))
        codes = [finding.code for finding in verdict.findings]
        append_line(
            path,
            {"problem": problem.id, "status": verdict.status.value, "findings": codes},
        )
    write_noise(show)


def write_noise(show: Show) -> None:
    """Write what is known so far."""
    rows = read_rows(show.work / "noise.jsonl")
    strict = read_rows(show.work / "noise_strict.jsonl")
    show.write("noise_gpu", summary(rows, strict), "noise")


def summary(rows: list[dict[str, Any]], strict: list[dict[str, Any]]) -> dict[str, Any]:
    """Return point and certain fast_1, by problem and of all."""
    by_problem: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_problem.setdefault(row["problem"], []).append(row)
    said = {row["problem"]: row for row in strict}
    problems = []
    groups: dict[str, list[tuple[int, int]]] = {name: [] for name in _CALLED}
    for name, every in by_problem.items():
        timed = [row for row in every if "speedup" in row]
        told: dict[str, Any] = {"problem": name, "verdicts": len(every), "timed": len(timed)}
        told["strict"] = said.get(name, {}).get("status", "not judged")
        told["untimed"] = sorted({row.get("message", "")[:200] for row in every} - {""})
        if timed:
            for what, holds in _CALLED.items():
                count = sum(holds(row) for row in timed)
                groups[what].append((count, len(timed)))
                told[what] = count
            speedups = [row["speedup"] for row in timed]
            told["speedup"] = statistics.fmean(speedups)
            told["deviation"] = statistics.stdev(speedups) if len(timed) > 1 else 0.0
            told["kernel_ms"] = statistics.median(row["kernel_ms"] for row in timed)
            told["half_width"] = statistics.median(
                (row["speedup_high"] - row["speedup_low"]) / 2 for row in timed
            )
        problems.append(told)
    every_rate = {}
    for what, pairs in groups.items():
        if of := sum(count for _, count in pairs):
            # What is random here is each measurement, not the choice of problems.
            share = sum(count for count, _ in pairs) / of
            low, high = wilson(share, of)
            every_rate[what] = {"value": share, "low": low, "high": high}
    return {"ruleset": "kernelbench", "problems": problems, "all": every_rate, "verdicts": rows}
