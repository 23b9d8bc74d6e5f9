"""What is asked of the judge beside the episodes: do labels hold on this device, and how fast are
right answers?
"""

from __future__ import annotations

import collections
import dataclasses
import json
import time
from typing import Any

import numpy as np

from benchmarks.learning.gpu_warm import spread
from benchmarks.learning.gpu_work import TABLES, Work
from kernelgym.answers.parsing import parse
from kernelgym.feedback import feedback
from kernelgym.judge import LocalEvaluator
from kernelgym.prompts.short import brief, question
from kernelgym.suites.synthetic import Defect, solve
from kernelgym.types import Job, Kernel, Status, Verdict
from kernelgym_train.demo.corpus import Example, first_answers
from kernelgym_train.demo.dialogue import answer_of, told


def check_labels(work: Work) -> dict[str, Any]:
    """Judge some of the warm start's kernels: do labels hold here, and how fast is the judge?"""
    plan, device = work.plan, work.device
    problems = spread(work.splits.warmstart)[: 4 * plan.labels]
    seen: dict[str, list[Example]] = collections.defaultdict(list)
    for example in first_answers(problems, plan.seed, 2, device=device):
        seen[example.label].append(example)
    seen["right"] = [
        Example(
            problem, question(problem), answer_of(solve(problem).source), "right", Status.CORRECT
        )
        for problem in problems[: plan.labels // 3]
    ]
    others = [group for label, group in seen.items() if label != "right"]
    in_turn = (group[n] for n in range(plan.labels) for group in others if n < len(group))
    chosen = [*seen["right"], *in_turn][: plan.labels]
    jobs = [Job(example.problem, _kernel_of(example)) for example in chosen]
    work.wait_for_judge()
    started = time.monotonic()
    verdicts = work.judge.evaluate_many(jobs)
    seconds = time.monotonic() - started
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    odd = []
    for example, verdict in zip(chosen, verdicts, strict=True):
        table[example.label][verdict.status.value] += 1
        if verdict.status is not example.expected:
            said = f"{verdict.status.value}, {verdict.message[:160]!r}"
            odd.append(f"{example.problem.id} {example.label}: {said}")
        elif mismatch := _told_otherwise(example, verdict, device):
            odd.append(f"{example.problem.id} {example.label}: {mismatch}")
    for label, tally in sorted(table.items()):
        work.say(f"  {label:<16}{dict(tally)}")
    for line in odd[:8]:
        work.say(f"  not as labelled: {line}")
    work.say(f"  {len(jobs) / seconds:.1f} verdicts a second with {work.workers} workers")
    stages = [verdict.stages for verdict in verdicts if verdict.stages is not None]
    means = {
        field.name: float(np.mean([getattr(each, field.name) for each in stages]))
        for field in (dataclasses.fields(stages[0]) if stages else ())
    }
    work.say("  mean stages " + ", ".join(f"{name} {value:.2f}" for name, value in means.items()))
    return {
        "kernels": len(jobs),
        "as_labelled": len(jobs) - len(odd),
        "verdicts_per_s": len(jobs) / seconds,
        "by_label": {label: dict(tally) for label, tally in table.items()},
        "stages": means,
    }


def _told_otherwise(example: Example, verdict: Verdict, device: str) -> str:
    """Return what the judge's feedback says where the warm start's says something else."""
    if example.label != Defect.NAME_ERROR:
        return ""  # of others, what a label decides is its status
    reply = parse(example.answer, "triton")
    judged = brief(feedback(verdict, reply, level="minimal", budget=200))
    shown = brief(told(example.answer, example.expected, device))
    return "" if judged == shown else f"told {judged!r}, shown {shown!r}"


def _kernel_of(example: Example) -> Kernel:
    return Kernel(example.answer.removeprefix("<KERNEL>\n").removesuffix("</KERNEL>"), "triton")


def time_right(work: Work) -> dict[str, Any]:
    """Time the trained model's right greedy answers, with nothing else on the device."""
    kept = json.loads((work.folder / "right.json").read_text())
    known = {p.id: p for name in TABLES for p in work.problems(name)}
    jobs = [Job(known[row["problem"]], Kernel(row["source"], "triton")) for row in kept]
    if not jobs:  # an untrained model: any right kernels will do to see that timing works
        work.say("  no right answer to time; kernels of the suite's in their place")
        jobs = [Job(p, solve(p)) for p in known.values()]
    jobs = jobs[: work.plan.timed]
    with LocalEvaluator(work.device, "strict", min(4, work.workers), timing=True) as judge:
        verdicts = judge.evaluate_many(jobs)
    timed = [(job, verdict) for job, verdict in zip(jobs, verdicts, strict=True) if verdict.timed]
    speeds = [_speed(job, verdict) for job, verdict in timed]
    work.say(f"  {len(timed)} of {len(jobs)} timed")
    return {"kernels": len(jobs), "own": bool(kept), "speedups": speeds}


def _speed(job: Job, verdict: Verdict) -> dict[str, Any]:
    timing = verdict.timing
    assert timing is not None
    return {
        "problem": job.problem.id,
        "speedup": round(timing.speedup, 4),
        "low": round(timing.speedup_low, 4),
        "high": round(timing.speedup_high, 4),
        "kernel_ms": round(timing.kernel_ms, 5),
    }
