"""The repeatability benchmark's arithmetic: variation, coverage, and what intervals leave out."""

from __future__ import annotations

import ast
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.repeatability import run
from benchmarks.repeatability.problems import SIZES
from kernelgym.judge.timing import speedup as intervals


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


@pytest.mark.parametrize("on_cpu", [True, False])
def test_every_size_is_a_problem_with_a_kernel(on_cpu: bool) -> None:
    jobs = [size.job(on_cpu) for size in SIZES.values()]
    assert len({job.problem.id for job in jobs}) == len({job.problem.digest for job in jobs}) == 4
    for job in jobs:
        ast.parse(job.problem.source)
        ast.parse(job.kernel.source)
        assert job.kernel.language == ("cpp" if on_cpu else "triton")
