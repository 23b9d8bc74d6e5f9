"""What the rules on interpreted kernels cost: Triton verdicts a second, with and without them.

Run ``python -m benchmarks.judge.strict_cost [--rounds 8] [--jobs 24] [--workers 2] [--out FILE]``.

Two evaluators judge the same correct kernels of Synthetic-L1 in turn, each source unseen: one by
`strict`, one by `strict` as it was before it asked Triton's front end, drew ties and looked for
races (`strict@077154a0`). Rounds alternate, so that a machine whose speed changes slows both. The
ratio is the median of the rounds' ratios; above 0.8 the goal is met. Problems are prepared before
the clock starts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.judge.judge_cpu import renamed
from benchmarks.machine import machine
from kernelgym.judge import LocalEvaluator
from kernelgym.rulesets import RULESETS, recorded_ruleset
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.types import Job, Verdict

GOAL = 0.8
BEFORE, NOW = recorded_ruleset("strict@077154a0"), RULESETS["strict"]


def measure(rounds: int, jobs: int, workers: int) -> dict[str, Any]:
    """Judge alternating rounds by both rulesets; return verdicts a second of each."""
    problems = list(SyntheticSuite().problems(level=1))
    sources = [Job(problem, solve(problem, "triton")) for problem in problems]
    numbers = iter(range(10**9))

    def drawn(count: int) -> list[Job]:
        chosen = [sources[index % len(sources)] for index in range(count)]
        return [Job(job.problem, renamed(job.kernel, next(numbers))) for job in chosen]

    rates: dict[str, list[float]] = {BEFORE.label: [], NOW.label: []}
    calls: dict[str, list[int]] = {BEFORE.label: [], NOW.label: []}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalEvaluator(ruleset=BEFORE, workers=workers, timing=False, cache_dir=folder) as before,
        LocalEvaluator(ruleset=NOW, workers=workers, timing=False, cache_dir=folder) as now,
    ):
        both = {BEFORE.label: before, NOW.label: now}
        for evaluator in both.values():
            for _ in range(workers):  # a worker knows the problems that it has judged
                evaluator.evaluate_many(drawn(len(sources)))
        for number in range(rounds):
            for label in list(both)[:: 1 if number % 2 else -1]:
                batch = drawn(jobs)
                started = time.perf_counter()
                verdicts = both[label].evaluate_many(batch)
                rates[label].append(jobs / (time.perf_counter() - started))
                calls[label] += [_trials(verdict) for verdict in verdicts]
    pairs = zip(rates[NOW.label], rates[BEFORE.label], strict=True)
    ratios = [now / before for now, before in pairs]
    return {
        "rounds": rounds,
        "jobs": jobs,
        "workers": workers,
        "rulesets": [
            {
                "ruleset": label,
                "per_s": statistics.median(rates[label]),
                "calls": statistics.mean(calls[label]),
            }
            for label in both
        ],
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "goal_met": statistics.median(ratios) >= GOAL,
    }


def _trials(verdict: Verdict) -> int:
    if not verdict.correct:
        raise SystemExit(f"a correct kernel was {verdict.status.value}: {verdict.message}")
    return verdict.trials


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of each ruleset")
    parser.add_argument("--jobs", type=int, default=24, help="kernels of a round")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    recorded = machine("torch", "triton")
    result = measure(options.rounds, options.jobs, options.workers)
    for each in result["rulesets"]:
        calls = f"{each['calls']:.1f} calls each"
        print(f"{each['ruleset']}: {each['per_s']:.1f} verdicts a second, {calls}")
    met = "met" if result["goal_met"] else "NOT met"
    print(f"ratio {result['ratio']:.2f} (goal {GOAL}: {met})")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"machine": recorded, **result}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
