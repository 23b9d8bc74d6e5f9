"""The GPU search benchmark: its tasks can be searched, and its goals are met by what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page.models import counters, gpu_searches
from benchmarks.search.gpu import GOALS, TimingSeconds, curve, reached
from benchmarks.search.gpu_kernels import OWN_TASKS
from kernelgym import Kernel, Problem, Verdict
from kernelgym.evaluators.abilities import Duels
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, verdict
from kernelgym.verdict import Stages
from kernelgym_train.mcgs.events import SearchLog
from kernelgym_train.mcgs.session import rules_for
from kernelgym_train.mcgs.task import task_of
from kernelgym_train.mcgs.variant import read_variant
from support.searches import InTurns


@pytest.mark.parametrize("name", OWN_TASKS)
def test_gpu_task_has_a_move_that_changes_the_whole_kernel(name: str) -> None:
    task = task_of(*OWN_TASKS[name], name)
    knobs = rules_for(task, False).space().knobs
    assert any(knob.tried_first for knob in knobs)
    assert read_variant(task.start).kernel() == task.start


def test_goals_are_of_the_median_over_seeds() -> None:
    rows = [
        {"task": "softmax", "algorithm": "tpe", "seed": seed, "floor_share": share}
        for seed, share in enumerate((0.5, 0.96, 0.97))
    ]
    assert reached(rows, "tpe") == {"softmax": True}
    assert reached(rows[:1], "tpe") == {"softmax": False} and set(GOALS) >= {"softmax"}


def row(seed: int, speedup: float, **given: Any) -> dict[str, Any]:
    """Return a row of a search of the softmax."""
    usual = {"task": "softmax", "algorithm": "tpe", "ncu_every": 0, "evaluations": 4}
    usual |= {"evaluations_a_minute": 20.0, "share_of_device": 0.5}
    figures = {"seed": seed, "speedup": speedup, "over_torch": 1.6, "floor_share": 0.99}
    return usual | figures | given


def test_page_tells_medians_over_seeds_beside_random() -> None:
    rows = [row(seed, gain) for seed, gain in enumerate((2.9, 3.1, 3.0))]
    rows += [row(0, 1.5, algorithm="random"), row(0, 9.0, ncu_every=5)]
    told = gpu_searches({"rows": rows})
    assert "| softmax | 3 | 3.00 | 2.90 to 3.10 | 1.60 | 0.99 | 4 | 20 | 0.50 | 1.50 |" in told
    assert "`random`" not in gpu_searches({"rows": rows[:3]})


def test_seconds_of_timing_are_added_up_over_verdicts_and_rounds() -> None:
    def timed(problem: Problem, kernel: Kernel) -> Verdict:
        return replace(verdict("correct"), stages=Stages(timing_s=0.5))

    seconds = TimingSeconds(InTurns(timed, timed))
    seconds.evaluate(SAMPLE_PROBLEM, SAMPLE_KERNELS["triton"])
    seconds.duel_round(SAMPLE_PROBLEM, [SAMPLE_KERNELS["triton"]] * 2)
    assert seconds.ability(Duels) is seconds and seconds.seconds == 1.5


def test_counters_are_compared_at_equal_evaluations_and_at_equal_seconds() -> None:
    off, on = [(10, 1.5), (20, 2.0), (30, 3.0)], [(22, 2.5), (28, 2.5)]
    rows = [row(0, 3.0, algorithm="best_first", curve=off)]
    rows += [row(0, 2.5, algorithm="best_first", curve=on, ncu_every=5)]
    rows += [row(1, 3.0, algorithm="best_first", curve=[(9, 2.5), (40, 4.0)])]
    rows += [row(1, 2.5, algorithm="best_first", curve=[(9, 3.5), (30, 3.5)], ncu_every=5)]
    rows += [row(2, 9.0, algorithm="best_first", curve=[(9, 9.0)], ncu_every=5)]  # without a pair
    told = counters({"rows": rows})
    assert "softmax 3.00 without and 3.00 with them after 2 evaluations" in told
    assert "2.25 and 3.00 after 28 s (median of 2 seeds)" in told


def test_curve_is_the_best_so_far_after_each_evaluation(tmp_path: Path) -> None:
    folder = tmp_path / "kernels" / "softmax"
    log = SearchLog.open(folder / "events.jsonl")
    for seconds, value in ((1.0, math.log(2.0)), (2.0, None), (3.0, math.log(1.5))):
        log.append(seconds, "judged", {"value": value})
    log.close()
    assert curve(tmp_path) == [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)]
