"""Benchmark a policy: play problems, go on with more samples, and read what came of it.

Run it with `python examples/08_benchmark.py`; it needs no GPU and no model, and takes half a minute
on two cores. `kernelgym eval` is the same from the command line.
"""

import tempfile
from collections import Counter
from pathlib import Path

from kernelgym import pass_at_k, read_records
from kernelgym.benchmark import evaluate


def main() -> None:
    task = {"suite": "Synthetic", "level": 1, "limit": 3, "turns": 2}
    with tempfile.TemporaryDirectory() as folder:
        first = evaluate("scripted", samples=1, out=folder, workers=2, **task)
        print(f"one sample each: {first.answers} answers, {first.judged} kernels judged")
        more = evaluate("scripted", samples=4, out=folder, workers=2, **task)
        print(f"four each: {more.answers} new answers, {more.answers_there} were there")
        solved: Counter[str] = Counter()
        for record in read_records(Path(folder) / "trajectories.jsonl"):
            played = record.trajectory
            solved[played.problem.id] += any(turn.verdict.correct for turn in played.turns)
    for problem, correct in solved.items():
        print(f"{problem}: {correct} of 4 episodes solved, pass@2 {pass_at_k(4, correct, 2):.2f}")
    print(f"solved: {sum(solved.values())} of {more.episodes} episodes")


if __name__ == "__main__":
    main()
