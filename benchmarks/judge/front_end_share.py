"""How many of a trained model's right answers Triton's front end accepts.

Run ``python -m benchmarks.judge.front_end_share before=FOLDER after=FOLDER [--steps 5] [--out
FILE]`` on run folders of a trainer whose kernels were judged by the interpreter. The right answers
of a run's last steps, by the rules that the run was judged by, are judged once more by `strict`,
which asks Triton's front end whether a GPU could compile each launch. A model that learned from
verdicts without that question may have learned what no GPU takes.

Answers are counted as often as they were given; equal kernels for one problem are judged once.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from kernelgym import ScriptedEvaluator
from kernelgym.benchmark.numbers.intervals import wilson
from kernelgym.judge import LocalEvaluator
from kernelgym.records.trajectories import EpisodeRecord, read_records
from kernelgym.types import Job, Status
from kernelgym.verdict import FRONT_END

__all__ = ["measure", "right_answers"]


def right_answers(records: Iterable[EpisodeRecord], steps: int) -> tuple[Counter[Job], str]:
    """Return the right answers of the last steps, how often each was given, and their ruleset.

    Args:
        records: Episodes of a trainer, whose keys begin with the step.
        steps: How many of the last steps count.

    Raises:
        ValueError: If there is no episode.
    """
    kept = list(records)
    if not kept:
        raise ValueError("the run has no episodes")
    last = max(_step(record) for record in kept)
    late = [record for record in kept if _step(record) > last - steps]
    found: Counter[Job] = Counter()
    for record in late:
        for turn in record.trajectory.turns:
            if turn.reply.kernel is not None and turn.verdict.correct:
                found[Job(record.trajectory.problem, turn.reply.kernel)] += 1
    return found, ", ".join(sorted({record.ruleset for record in late}))


def measure(answers: Counter[Job], evaluator: LocalEvaluator | ScriptedEvaluator) -> dict[str, Any]:
    """Judge answers anew; return how many the front end accepts, and their statuses."""
    jobs = list(answers)
    statuses: Counter[str] = Counter()
    accepted = 0
    for job, verdict in zip(jobs, evaluator.evaluate_many(jobs), strict=True):
        refused = any(finding.code == FRONT_END for finding in verdict.findings)
        said = FRONT_END if refused else verdict.status.value
        if verdict.status is Status.UNAVAILABLE:
            raise RuntimeError(f"an answer was not judged: {verdict.message}")
        statuses[said] += answers[job]
        accepted += 0 if refused else answers[job]
    total = answers.total()
    low, high = wilson(accepted / total, total)
    return {
        "right_answers": total,
        "kernels": len(jobs),
        "accepted": accepted,
        "share": {"value": accepted / total, "low": low, "high": high},
        "statuses": dict(sorted(statuses.items())),
    }


def _step(record: EpisodeRecord) -> int:
    return int(record.key.partition("/")[0])


def main() -> None:
    """Measure runs and write the record."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER", help="run folders of a trainer")
    parser.add_argument("--steps", type=int, default=5, help="how many of the last steps count")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    with LocalEvaluator(workers=options.workers, timing=False) as judge:
        for named in options.runs:
            name, _, folder = named.partition("=")
            records = read_records(Path(folder) / "trajectories.jsonl")
            answers, learned_by = right_answers(records, options.steps)
            rows.append({"run": name, "learned_by": learned_by, **measure(answers, judge)})
            print(json.dumps(rows[-1]), flush=True)
    data = {"machine": machine("torch", "triton"), "steps": options.steps, "runs": rows}
    if options.out is not None:
        options.out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
