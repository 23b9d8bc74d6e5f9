"""Tokens, money and the judge's seconds: sums of what is known, and None for what is not."""

from __future__ import annotations

import dataclasses

import pytest

from kernelgym.benchmark.numbers.costs import judge_time, per_solved, spent
from kernelgym.benchmark.run.generations import Generation, TokenUsage
from kernelgym.verdict import Stages
from support.benchmark_runs import RIGHT, WRONG


def test_sums_are_of_what_is_known() -> None:
    found = spent(
        [
            Generation("a", usage=TokenUsage(100, 60, 20, 5), usd=0.5),
            Generation("b", usage=TokenUsage(50, 0, 10, 0)),
            Generation("c"),
        ]
    )
    assert (found.answers, found.counted) == (3, 2)
    assert found.usage == TokenUsage(150, 60, 30, 5)
    assert found.tokens == 180 and found.usd == 0.5


def test_what_is_unknown_is_not_nothing() -> None:
    found = spent([Generation("a")])
    assert found.tokens is found.usd is found.usage is None
    assert per_solved(None, 3) is None and per_solved(6.0, 0) is None and per_solved(6.0, 3) == 2.0


def test_the_judges_seconds_are_summed_by_stage() -> None:
    one = dataclasses.replace(RIGHT, wall_s=3.0, stages=Stages(build_s=1.0, check_s=1.5))
    found = judge_time([one, dataclasses.replace(WRONG, wall_s=1.0)])
    assert found.total_s == 4.0
    assert found.stages["build"] == 1.0 and sum(found.stages.values()) == pytest.approx(2.5)
