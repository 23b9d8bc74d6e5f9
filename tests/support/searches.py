"""Searches judged from a table, for tests: what moves are worth is written down."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Kernel, Problem, Verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.task import SearchTask, task_of
from kernelgym_train.mcgs.variant import Variant, state_key

WORTH = {
    "vector_size(32)": 8.0,
    "vector_size(16)": 5.0,
    "vector_size(64)": 0.5,
    "parallel for\n": 1.9,
    "parallel for collapse": 1.7,
    '"-O3"': 1.1,
    "-march=native": 1.6,
    "-funroll-loops": 1.05,
    "omp simd": 0.9,
    "GCC unroll 8\n": 1.02,
}
"""What a kernel of the matmul example is sped up by, by text in it."""
TASK = task_of(*EXAMPLES["matmul"], "matmul")


def speedup(kernel: Kernel) -> float:
    """Return what the table says: a product of factors."""
    product = 0.01
    for text, factor in WORTH.items():
        product *= factor if text in kernel.source else 1.0
    return product


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    """Judge by the table; kernels that prefer wide vectors are wrong."""
    if "-mprefer-vector-width=512" in kernel.source:
        return verdict("wrong")
    return verdict("correct", speedup=speedup(kernel))


SearchScript = Callable[[Problem, Kernel], Verdict]


def timed(kernel: Kernel, reference: float = 1.0, noise: float = 1.0) -> Verdict:
    """Return a verdict in turns by the table, beside a reference that takes `reference` ms."""
    turn_ms = noise / speedup(kernel)
    made = verdict("correct", speedup=reference / turn_ms)
    assert made.timing is not None
    return dataclasses.replace(made, timing=dataclasses.replace(made.timing, turn_ms=turn_ms))


class InTurns(ScriptedEvaluator):
    """Judges in turns by one script, and alone by another."""

    def __init__(self, alone: SearchScript, turns: SearchScript) -> None:
        super().__init__(alone, workers=3)
        self.turns, self.rounds = turns, list[tuple[Kernel, ...]]()

    def duel_round(
        self, problem: Problem, kernels: Sequence[Kernel], *, seed: str = ""
    ) -> tuple[Verdict, ...] | None:
        self.rounds.append(tuple(kernels))
        found = tuple(self.turns(problem, kernel) for kernel in kernels)
        return None if any(each.status == "unavailable" for each in found) else found


def evaluator(script: Callable[[Problem, Kernel], Verdict] = judged) -> ScriptedEvaluator:
    """Return an evaluator that knows the table, and judges three kernels side by side."""
    return ScriptedEvaluator(script, workers=3)


def run(outdir: Path, judge: ScriptedEvaluator, builds: int = 12, **given: Any) -> dict[str, Any]:
    """Search the matmul example, by `best_first` unless another is given; return the result."""
    usual = {"budget": Budget(builds), "algo": "best_first"}
    return searched(TASK, judge, outdir, **(usual | given))


def searched(
    task: SearchTask, judge: Any, outdir: Path, *, resume: bool = False, **given: Any
) -> dict[str, Any]:
    """Search a task with options of `SearchConfig`, and return the result."""
    return search(task, judge, outdir, SearchConfig(**given), resume=resume)


def empty_state(start: Variant) -> SearchState:
    """Return a search that has done nothing."""
    return SearchState.begin(state_key(start), start)


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a search of `TASK`."""
    lines = (folder / "kernels" / "matmul" / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
