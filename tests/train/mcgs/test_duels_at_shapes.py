"""Duels of a kernel spec's kernels: at all shapes, in turns where the evaluator can."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelgym import Kernel, Problem, Verdict, duel
from kernelgym.evaluators.abilities import Duels
from kernelgym.evaluators.duel import Duel
from kernelgym.suites.spec_files import spec_from
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.shapes import ShapesEvaluator
from kernelgym_train.mcgs.task import SearchTask, task_of_spec
from support import searches
from support.searches import searched
from support.specs import PRODUCT, changed

FASTER = Kernel("faster", "cpp")


def task() -> SearchTask:
    return task_of_spec(spec_from(changed(PRODUCT), Path()))


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    """Judge `FASTER` as 4 times as fast at n=48, and as twice as fast elsewhere."""
    gain = 1.0 if kernel != FASTER else 4.0 if "n=48" in problem.id else 2.0
    return verdict("correct", speedup=0.1 * gain)


class InTurns(ScriptedEvaluator):
    """Judges in turns, too; not at problems whose id holds `not_at`."""

    def __init__(self, *args: Any, not_at: str = "-") -> None:
        super().__init__(*args)
        self.not_at, self.at = not_at, list[str]()

    def duel_round(
        self, problem: Problem, kernels: Sequence[Kernel], *, seed: str = ""
    ) -> tuple[Verdict, ...] | None:
        self.at.append(problem.id)
        if self.not_at in problem.id:
            return None
        return tuple(self.evaluate(problem, kernel, seed=seed) for kernel in kernels)


def test_later_rounds_are_in_turns_at_all_shapes() -> None:
    found, shapes = InTurns(judged), task().shapes
    evaluator = ShapesEvaluator(found, task().problem, shapes)
    ended = duel(evaluator, task().problem, task().start, FASTER, most=4)
    assert ended.decided == "second" and ended.rounds == 4
    assert math.log(ended.ratio) == pytest.approx(0.75 * math.log(4.0) + 0.25 * math.log(2.0))
    assert sorted(found.at) == sorted(3 * [shape.problem.id for shape in shapes])
    assert evaluator.last(FASTER, 3) == pytest.approx({"n=48": 0.4, "n=96": 0.2, "n=1237": 0.2})


def test_what_turns_cannot_tell_whole_verdicts_tell() -> None:
    found = InTurns(judged, not_at="n=96")
    evaluator = ShapesEvaluator(found, task().problem, task().shapes)
    ended = duel(evaluator, task().problem, task().start, FASTER, most=4)
    assert ended.decided == "second" and len(set(found.at)) == 2 == len(found.at)
    plain = ShapesEvaluator(ScriptedEvaluator(judged), task().problem, task().shapes)
    assert plain.ability(Duels) is None and evaluator.ability(Duels) is evaluator


def test_wrong_at_a_hidden_shape_loses_in_turns() -> None:
    seeds: list[str] = []

    def wrong_later(problem: Problem, kernel: Kernel) -> Verdict:
        seeds.append(problem.id)
        late = kernel == FASTER and len(seeds) > 6  # after the first round
        return verdict("wrong") if late and "n=1237" in problem.id else judged(problem, kernel)

    evaluator = ShapesEvaluator(InTurns(wrong_later), task().problem, task().shapes)
    assert duel(evaluator, task().problem, task().start, FASTER).decided == "first"


def test_speedups_by_shape_are_of_the_duel_that_counts(tmp_path: Path) -> None:
    """The last duel decides nothing, on a host that has changed: the earlier one stands."""
    given, late = task(), False

    def drifting(problem: Problem, kernel: Kernel) -> Verdict:
        drift = 3.0 if late and "n=48" in problem.id and kernel != given.start else 1.0
        return verdict("correct", speedup=searches.speedup(kernel) * drift)

    def compare(
        evaluator: Any, problem: Problem, first: Kernel, second: Kernel, **how: int
    ) -> Duel:
        nonlocal late
        late = bool(compared) and (first, second) == compared[0]
        compared.append((first, second))
        ended = duel(evaluator, problem, first, second, **how)
        return dataclasses.replace(ended, decided="neither", low=0.5) if late else ended

    compared: list[tuple[Kernel, Kernel]] = []
    judge = ScriptedEvaluator(drifting)
    result = searched(given, judge, tmp_path, budget=Budget(1), workers=1, compare=compare)
    assert late and result["speedup"] > 1.0
    rows = [row for row in result["shapes"] if row["weight"]]
    total = sum(row["weight"] * math.log(row["speedup"]) for row in rows)
    assert total == pytest.approx(math.log(result["speedup"]))


def test_speedups_by_shape_are_lost_with_a_kill(tmp_path: Path) -> None:
    """Killed in the last duel, which then decides nothing: the one before the kill stands."""
    given, killed = task(), False
    judge = ScriptedEvaluator(lambda *job: verdict("correct", speedup=searches.speedup(job[1])))

    def compare(
        evaluator: Any, problem: Problem, first: Kernel, second: Kernel, **how: int
    ) -> Duel:
        if (first, second) in compared and not killed:
            raise KeyboardInterrupt
        compared.append((first, second))
        ended = duel(evaluator, problem, first, second, **how)
        return dataclasses.replace(ended, decided="neither", low=0.5) if killed else ended

    def run(resume: bool) -> dict[str, Any]:
        options: dict[str, Any] = {"budget": Budget(1), "workers": 1, "compare": compare}
        return searched(given, judge, tmp_path, resume=resume, **options)

    compared: list[tuple[Kernel, Kernel]] = []
    with pytest.raises(KeyboardInterrupt):
        run(resume=False)
    killed = True
    result = run(resume=True)
    assert result["speedup"] > 1.0 and {row["speedup"] for row in result["shapes"]} == {None}
