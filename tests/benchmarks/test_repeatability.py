"""The repeatability benchmark's arithmetic: variation, coverage, and what intervals leave out."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.repeatability import run
from benchmarks.repeatability.problems import SIZES
from kernelgym.judge.timing import speedup as intervals
from kernelgym.testing import ScriptedEvaluator, verdict


def entries(count: int, between: float, within: float, term: float) -> list[dict[str, Any]]:
    """Verdicts on a kernel that is twice as fast, as the judge would report them."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(count):
        centre = math.log(2.0) + rng.normal(0, between)
        pairs = [(math.exp(rng.normal(centre, within)), 1.0) for _ in range(15)]
        found.append({**dataclasses.asdict(intervals.summarise(pairs, term)), "wall_s": 1.0})
    return found


@given(st.floats(0.1, 10), st.floats(0.001, 0.5), st.floats(0, 0.2))
def test_narrowing_takes_back_what_widening_gave(speedup: float, half: float, term: float) -> None:
    middle = math.log(speedup)
    ends = intervals.widened(middle - half, middle, middle + half, term)
    low, high = (run.narrowed(math.exp(end), speedup, term) for end in ends)
    assert math.log(low) == pytest.approx(middle - half, abs=1e-6)
    assert math.log(high) == pytest.approx(middle + half, abs=1e-6)


@pytest.mark.parametrize("term", [0.0, 0.02, 0.05])
def test_coverage_and_its_cause_are_found_whatever_the_report_was_widened_by(term: float) -> None:
    found = entries(400, between=0.02, within=0.004, term=term)
    assert run.unexplained(found, term) == pytest.approx(0.02, rel=0.15)
    widened = run.coverage(found, term, 0.02)
    assert 0.92 <= widened["both"] <= 0.98
    assert 0.95 <= widened["low"] <= 1.0
    assert run.coverage(found, term, 0.0)["both"] < 0.3


def test_nothing_is_unexplained_where_pairs_tell_all() -> None:
    found = entries(400, between=0.0, within=0.01, term=0.0)
    assert run.unexplained(found, 0.0) < 0.002
    assert run.coverage(found, 0.0, 0.0)["both"] >= 0.92


def test_a_summary_holds_both_sides_against_the_goal() -> None:
    size = SIZES["200us"]
    ours = entries(20, between=0.01, within=0.001, term=0.0)
    theirs = [{"reference_ms": 2.0, "kernel_ms": ms, "wall_s": 9.0} for ms in (1.0, 1.0, 1.25)]
    found = run.summary(size, ours, theirs, 0.0)
    speedups = [entry["speedup"] for entry in ours]
    assert found["variation"] == pytest.approx(np.std(speedups, ddof=1) / np.mean(speedups))
    assert not found["goal_met"]
    assert found["smallest"] <= found["speedup"] <= found["largest"]
    assert found["kernelbench"]["smallest"] == 1.6
    assert found["kernelbench"]["variation"] == pytest.approx(0.1237, abs=1e-3)
    shown = run.table({"sizes": [found], "widened_by": 0.0, "untimed": {"20us": 2}})
    assert "above the goal" in shown and "20us: 2 left untimed" in shown


def test_rounds_ask_each_side_as_often_as_wanted_and_keep_what_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = argparse.Namespace(
        device="cuda:0", runs=3, sizes="20us,2ms", kernelbench_root=Path("x"),
        kernelbench_sizes="20us", kernelbench_runs=2,
    )  # fmt: skip
    answers = [{"reference_ms": 2.0, "kernel_ms": 1.0, "wall_s": 1.0}, None]

    def ask(*_: object) -> dict[str, Any]:
        answer = answers.pop(0)
        if answer is None:
            raise run.Untimed("it failed")
        return answer

    monkeypatch.setattr(run, "ask_kernelbench", ask)
    runs: dict[str, Any] = {}
    rounds = run.Rounds(options, runs)
    more = []
    with ScriptedEvaluator([verdict("correct", speedup=2.0)]) as evaluator:
        for _ in range(3):
            more.append(rounds.run(evaluator, Path("y")))
    assert more == [True, True, False]
    assert [len(runs[name]["kernelgym"]) for name in ("20us", "2ms")] == [3, 3]
    assert len(runs["20us"]["kernelbench"]) == 1 and not runs["2ms"]["kernelbench"]
    assert runs["20us"]["untimed"] == [{"by": "kernelbench", "why": "it failed"}]


@pytest.mark.parametrize("on_cpu", [True, False])
def test_every_size_is_a_problem_with_a_kernel(on_cpu: bool) -> None:
    jobs = [size.job(on_cpu) for size in SIZES.values()]
    assert len({job.problem.id for job in jobs}) == len({job.problem.digest for job in jobs}) == 4
    for job in jobs:
        ast.parse(job.problem.source)
        ast.parse(job.kernel.source)
        assert job.kernel.language == ("cpp" if on_cpu else "triton")
