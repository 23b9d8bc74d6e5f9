"""What asking whose kernels a GPU works for costs.

Run ``python -m benchmarks.judge.device_share_cost [--device cuda:0] [--rounds 12] [--out FILE]`` on
a machine with a GPU.

Two evaluators judge the same correct kernels: one by `strict`, one by `strict` without `own_time`.
Each round judges every kernel by both, in alternating order. A Triton kernel is profiled in the
process that is timed afterwards, so the ratio of its speedups also tells whether the profiler slows
what is timed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import gpu, machine
from kernelgym.cli.redteam import load_corpus
from kernelgym.judge import LocalEvaluator
from kernelgym.redteam.corpus import CorpusEntry
from kernelgym.rulesets import RULESETS
from kernelgym.types import Verdict

NAMES = (
    "heavy_chain_fused.triton",
    "softmax_online.triton",
    "matmul_tiles.triton",
    "heavy_chain_grid_stride.cuda",
    "linear_gelu_torch_mm.cuda",
)
GOAL_S = 0.15


def measure(device: str, rounds: int, corpus: Path) -> dict[str, Any]:
    """Judge each kernel by both rulesets in every round."""
    entries, problems = load_corpus(corpus)
    chosen = [entry for entry in entries if entry.name in NAMES and entry.kind == "honest"]
    now = RULESETS["strict"]
    both = {"with": now, "without": dataclasses.replace(now, own_time=0.0)}
    found: dict[str, dict[str, list[Verdict]]] = {
        entry.name: {how: [] for how in both} for entry in chosen
    }
    with tempfile.TemporaryDirectory() as folder:
        judges = {
            how: LocalEvaluator(device, rules, cache_dir=folder) for how, rules in both.items()
        }
        try:
            for number in range(-1, rounds):
                for entry in chosen:
                    for how in list(judges)[:: 1 if number % 2 else -1]:
                        kernel, problem = entry.kernel, problems[entry.problem]
                        verdict = judges[how].evaluate(problem, kernel, seed=f"{number}-{how}")
                        if number >= 0:  # the first round builds and prepares
                            found[entry.name][how].append(verdict)
        finally:
            for judge in judges.values():
                judge.close()
    rows = [_row(entry, found[entry.name]) for entry in chosen]
    costs = [row["evidence_s"]["with"] - row["evidence_s"]["without"] for row in rows]
    return {
        "rounds": rounds,
        "kernels": rows,
        "most_s": max(costs),
        "goal_met": max(costs) <= GOAL_S,
    }


def _row(entry: CorpusEntry, found: dict[str, list[Verdict]]) -> dict[str, Any]:
    def median(value: Any) -> dict[str, float]:
        return {how: statistics.median(map(value, verdicts)) for how, verdicts in found.items()}

    return {
        "kernel": entry.name,
        "statuses": sorted({v.status.value for verdicts in found.values() for v in verdicts}),
        "custom_share": median(lambda verdict: verdict.custom_share or 0.0),
        "wall_s": median(lambda verdict: verdict.wall_s),
        "evidence_s": median(lambda verdict: verdict.stages.evidence_s),
        "check_s": median(lambda verdict: verdict.stages.check_s),
        "timing_s": median(lambda verdict: verdict.stages.timing_s),
        "speedup": median(lambda verdict: verdict.speedup),
    }


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--corpus", type=Path, default=Path("tests/adversarial"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = measure(arguments.device, arguments.rounds, arguments.corpus)
    record = {"machine": {**machine("torch", "triton"), **gpu(arguments.device)}, **found}
    text = json.dumps(record, indent=2)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
